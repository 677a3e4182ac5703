// The kernels of an image coupling's network, coupling/convolutions_kernels.cpp, and the operands of one call.
#pragma once

#include <array>
#include <cstdint>

#include "scratch.h"
#include "simd/prefetch.h"

namespace invertbench {

// The places of an image, row by row. A plane is an image with a halo of zeros, one place wide; a place's window is
// the 3x3 places of the plane around it.
struct Grid {
  int64_t rows, columns;
  const int64_t* corners;  // of each place, the number of its window's first place in the plane
  const int64_t* numbers;  // 0, 1, 2, ...

  int64_t count() const { return rows * columns; }
  int64_t pitch() const { return columns + 2; }
  int64_t plane() const { return (rows + 2) * (columns + 2); }
  int64_t inside() const { return columns + 3; }  // number in the plane of the image's first place
};

// (image, channel, row, column) anywhere in memory.
template <class T>
struct Images {
  const T* data;
  int64_t channels, image_stride, channel_stride, row_stride, column_stride;
};

// A convolution's weight, gain * direction / |direction| per output channel.
template <class T>
struct WeightNorm {
  const T *gain, *direction;  // (outputs), (outputs, inputs, taps)
  int64_t outputs, inputs, taps;

  int64_t row() const { return inputs * taps; }
};

// Entry (output, input, tap) of a weight is at output * by_output + input * by_input + tap * by_tap, with the taps from
// the last to the first if `turned`.
struct Order {
  int64_t by_output, by_input, by_tap;
  bool turned;
};

constexpr int64_t TOGETHER = 16;  // output channels whose entries are moved together, as many as share a cache line

// The weights, in the order in which products read them. Rows are padded with zeros to whole vectors: `wide`,
// `taps_kept` and `taps_out` are the number of hidden channels, and nine times those of inputs and outputs, rounded up.
template <class T>
struct Network {
  Grid grid;
  int64_t kept, width, outputs, wide, taps_kept, taps_out;
  const T *first, *second, *third;  // (3, 3, kept, wide), (width, wide), (width, taps_out) with (3, 3, outputs)
  const T *bias1, *bias2, *bias3;   // (wide), (wide), (outputs)
  // Transposed and turned about; only for backward.
  const T *third_back, *second_back, *first_back;  // (3, 3, outputs, wide), (width, wide), (width, taps_kept)

  int64_t saved() const { return 2 * grid.count() * wide; }  // the hidden values of an image
};

// Sums over images of the gradients of the weights.
template <class T>
struct Gradients {
  T *first, *second, *third;  // (3, 3, kept, wide), (width: output, wide: input), (3, 3, outputs, wide) turned
  T *bias1, *bias2, *bias3;   // (wide), (wide), (outputs)
};

// The weights of the outputs from `begin` to `end`, at most TOGETHER.
template <class T>
void pack(const WeightNorm<T>& of, const Order& order, T* to, int64_t begin, int64_t end);

// The gradients of gain and direction from that of the weight, which is in `order`, for the same.
template <class T>
void unpack_gradients(const WeightNorm<T>& of, const Order& order, const T* of_weight, T* of_gain, T* of_direction,
                      int64_t begin, int64_t end);

// Forward for the images from `begin` to `end`; `saved` keeps both hidden values of every image, if it is not null.
template <class T>
void forward_images(const Network<T>& net, const Images<T>& x, T* saved, T* y, int64_t begin, int64_t end);

// Backward for the same, `together` images at a time; adds to `sums`, and to the gradient of x, whose images are
// `of_x_stride` apart. The gradients of the outputs are in two tensors, for some channels and then the others.
template <class T>
void backward_images(const Network<T>& net, const Images<T>& x, const std::array<Images<T>, 2>& gradients,
                     const T* saved, T* of_x, int64_t of_x_stride, const Gradients<T>& sums, int64_t together,
                     int64_t begin, int64_t end);

}  // namespace invertbench
