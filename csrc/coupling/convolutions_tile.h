// The network of an image coupling, some places after others, forward and backward, so that hidden values stay in the
// first two levels of the cache.
//
// Included by simd/each.h, in the namespace of an instruction set, with INVERTBENCH_BYTES: no include guard.
// Places keep their channels together. A 3x3 convolution to many channels is a product over the windows of a plane,
// whose rows of three places are adjacent in memory. One to few channels would leave a part of its vectors empty: it is
// a product over places, to nine times as many columns, the sum of which over the window follows.

#include "simd/exp.h"

#include "coupling/product.h"
#include "coupling/weight_norm.h"

// Places that pass through all products together.
constexpr int64_t CHUNK = 24;

// An image to the inside of a plane, whose places have `together` numbers.
template <class T>
void gather(const Images<T>& of, int64_t image, const Grid& grid, int64_t together, T* plane) {
  for (int64_t row = 0; row < grid.rows; ++row) {
    T* const to = plane + (grid.inside() + row * grid.pitch()) * together;
    for (int64_t channel = 0; channel < of.channels; ++channel) {
      const T* const from = of.data + image * of.image_stride + channel * of.channel_stride + row * of.row_stride;
      for (int64_t x = 0; x < grid.columns; ++x) to[x * together + channel] = from[x * of.column_stride];
    }
  }
}

// Every window's sum over its taps, plus the bias, to an image (channels, places), contiguous, or ADD it there. A place
// of the plane has `columns` numbers: the channels of the first tap, those of the second, and so on.
template <bool ADD, class T>
void add_windows(const Grid& grid, const T* plane, int64_t columns, int64_t channels, const T* bias, T* image) {
  for (int64_t n = 0; n < channels; n += LANES<T>) {
    const int64_t some = std::min<int64_t>(LANES<T>, channels - n);
    for (int64_t p = 0; p < grid.count(); ++p) {
      V<T> sum = *reinterpret_cast<const V<T>*>(bias + n);
      const T* row = plane + grid.corners[p] * columns + n;
      _Pragma("GCC unroll 3")
      for (int64_t y = 0; y < 3; ++y, row += grid.pitch() * columns + 3 * channels) {
        for (int64_t x = 0; x < 3; ++x) sum += *reinterpret_cast<const V<T>*>(row + x * (columns + channels));
      }
      for (int64_t channel = 0; channel < some; ++channel) {
        T& place = image[(n + channel) * grid.count() + p];
        place = ADD ? place + sum[channel] : sum[channel];
      }
    }
  }
}

// 3x3 convolution of a plane with `channels` numbers for each place, at `count` places from number `first` on.
template <class T>
void convolve(
    const Grid& grid, int64_t first, int64_t count, const T* plane, int64_t channels, const T* weight, const T* bias,
    T* c, int64_t columns) {
  const Product windows{1, 3, 3 * channels, 0, grid.pitch() * channels, 1, 0, 3 * channels * columns, columns,
                        channels, columns, 0};
  multiply(windows, count, columns, plane, grid.corners + first, weight, bias, c, grid.numbers);
}

// c = a weight + bias, for `count` places with `wide` numbers in a, of which `depth` are not padding. Row m of c is
// that of place c_places[m].
template <class T>
void transform(
    int64_t count, const T* a, int64_t wide, int64_t depth, const T* weight, const T* bias, T* c,
    const int64_t* c_places, int64_t columns, const int64_t* numbers) {
  const Product places{1, 1, depth, 0, 0, 1, 0, 0, columns, wide, columns, 0};
  multiply(places, count, columns, a, numbers, weight, bias, c, c_places);
}

// ELU of `count` numbers, whole vectors: x where x >= 0, else exp x - 1.
template <class T>
void activate(T* values, int64_t count) {
  for (int64_t i = 0; i < count; i += LANES<T>) {
    V<T>& h = *reinterpret_cast<V<T>*>(values + i);
    h = h < T(0) ? expm1_of<T>(h) : h;
  }
}

// gradient *= derivative of ELU, in terms of its value, and adds the products over all places to `sums`; for VECTORS
// vectors of every place.
template <class T, int VECTORS>
INVERTBENCH_INLINE void deactivate_columns(int64_t count, const T* values, T* gradient, int64_t wide, T* sums) {
  V<T> sum[VECTORS] = {};
  for (int64_t p = 0; p < count; ++p) {
    for (int v = 0; v < VECTORS; ++v) {
      const V<T> h = reinterpret_cast<const V<T>*>(values + p * wide)[v];
      V<T>& g = reinterpret_cast<V<T>*>(gradient + p * wide)[v];
      g = h > T(0) ? g : g * (h + T(1));
      sum[v] += g;
    }
  }
  for (int v = 0; v < VECTORS; ++v) reinterpret_cast<V<T>*>(sums)[v] += sum[v];
}

template <class T>
void deactivate(int64_t count, const T* values, T* gradient, int64_t wide, T* sums) {
  constexpr int64_t FOUR = 4 * LANES<T>;  // a place's neighbours in memory are read together
  int64_t n = 0;
  for (; n + FOUR <= wide; n += FOUR) deactivate_columns<T, 4>(count, values + n, gradient + n, wide, sums + n);
  for (; n < wide; n += LANES<T>) deactivate_columns<T, 1>(count, values + n, gradient + n, wide, sums + n);
}

// Forward for the images from `begin` to `end`; `saved` keeps the hidden values if it is not null.
template <class T>
void forward_images(const Network<T>& net, const Images<T>& x, T* saved, T* y, int64_t begin, int64_t end) {
  const Grid& grid = net.grid;
  const int64_t wide = net.wide, size = grid.count() * wide;
  Scratch<T> scratch;
  T* const plane = scratch.zeros(grid.plane() * net.kept);
  T* const own = scratch.numbers(2 * CHUNK * wide);
  T* const taps = scratch.zeros(grid.plane() * net.taps_out + LANES<T>);
  const T* const zeros = scratch.zeros(net.taps_out);
  for (int64_t image = begin; image < end; ++image) {
    gather(x, image, grid, net.kept, plane);
    for (int64_t first = 0; first < grid.count(); first += CHUNK) {
      const int64_t count = std::min(CHUNK, grid.count() - first);
      T* const hidden1 = saved == nullptr ? own : saved + image * net.saved() + first * wide;
      T* const hidden2 = saved == nullptr ? own + CHUNK * wide : hidden1 + size;
      convolve(grid, first, count, plane, net.kept, net.first, net.bias1, hidden1, wide);
      activate(hidden1, count * wide);
      transform(count, hidden1, wide, net.width, net.second, net.bias2, hidden2, grid.numbers, wide, grid.numbers);
      activate(hidden2, count * wide);
      transform(count, hidden2, wide, net.width, net.third, zeros, taps + grid.inside() * net.taps_out,
                grid.corners + first, net.taps_out, grid.numbers);
    }
    add_windows<false>(grid, taps, net.taps_out, net.outputs, net.bias3, y + image * net.outputs * grid.count());
  }
}

// The values of the images that backward takes together, and of one image the taps of the gradient of x.
template <class T>
struct Tile {
  T *x, *of_y;                   // planes with `kept` and `outputs` numbers for each place
  T *of_hidden1, *of_hidden2;    // (images, places, wide)
  T* taps;                       // a plane with `taps_kept` numbers for each place
  const T* zeros;
};

// The gradients of the hidden values, of image number `index` of a tile; adds that of x.
template <class T>
void backward_image(
    const Network<T>& net, const Tile<T>& tile, int64_t index, const T* saved, T* of_x, const Gradients<T>& sums) {
  const Grid& grid = net.grid;
  const int64_t wide = net.wide, size = grid.count() * wide;
  const T* const of_y = tile.of_y + index * grid.plane() * net.outputs;
  for (int64_t first = 0; first < grid.count(); first += CHUNK) {
    const int64_t count = std::min(CHUNK, grid.count() - first);
    const T *const hidden1 = saved + first * wide, *const hidden2 = hidden1 + size;
    T* const of_hidden1 = tile.of_hidden1 + index * size + first * wide;
    T* const of_hidden2 = tile.of_hidden2 + index * size + first * wide;
    prefetch(hidden2, count * wide);
    prefetch(hidden1, count * wide);
    convolve(grid, first, count, of_y, net.outputs, net.third_back, tile.zeros, of_hidden2, wide);
    deactivate(count, hidden2, of_hidden2, wide, sums.bias2);
    transform(count, of_hidden2, wide, net.width, net.second_back, tile.zeros, of_hidden1, grid.numbers, wide,
              grid.numbers);
    deactivate(count, hidden1, of_hidden1, wide, sums.bias1);
    transform(count, of_hidden1, wide, net.width, net.first_back, tile.zeros, tile.taps + grid.inside() * net.taps_kept,
              grid.corners + first, net.taps_kept, grid.numbers);
  }
  add_windows<true>(grid, tile.taps, net.taps_kept, net.kept, tile.zeros, of_x);
}

// Places of which a product of weight gradients takes one block of columns after the other, so that the columns stay in
// the first-level cache.
constexpr int64_t NEAR = 128;

// Adds the gradient of a 3x3 convolution's weight, as (3, 3, channels, wide): products of the windows of planes and the
// hidden values, or their gradients, at the windows' places, which are `distance` apart from image to image.
template <class T>
void add_window_gradient(
    const Network<T>& net, int64_t images, const T* planes, int64_t channels, const T* hidden, int64_t distance, T* c) {
  const Grid& grid = net.grid;
  const int64_t wide = net.wide, some_rows = std::clamp<int64_t>(NEAR / grid.columns, 1, grid.rows);
  const int64_t some = std::clamp<int64_t>(NEAR / grid.count(), 1, images);
  for (int64_t image = 0; image < images; image += some) {
    for (int64_t first = 0; first < grid.rows; first += some_rows) {
      const Product of{std::min(some, images - image), std::min(some_rows, grid.rows - first), grid.columns,
                       grid.plane() * channels, grid.pitch() * channels, channels, distance, grid.columns * wide, wide,
                       1, wide, wide};
      const T* const window = planes + (image * grid.plane() + first * grid.pitch()) * channels;
      const T* const places = hidden + image * distance + first * grid.columns * wide;
      for (int64_t row = 0; row < 3; ++row) {  // three taps in a row are adjacent
        T* const to = c + row * 3 * channels * wide;
        multiply(of, 3 * channels, wide, window + row * grid.pitch() * channels, grid.numbers, places, to, to,
                 grid.numbers);
      }
    }
  }
}

// The same of the 1x1 convolution, as (output, input).
template <class T>
void add_place_gradient(
    const Network<T>& net, int64_t images, const T* of_output, const T* input, int64_t distance, T* c) {
  const int64_t places = net.grid.count(), wide = net.wide, some = std::clamp<int64_t>(NEAR / places, 1, images);
  for (int64_t image = 0; image < images; image += some) {
    for (int64_t first = 0; first < places; first += NEAR) {
      const Product of{std::min(some, images - image), 1, std::min(NEAR, places - first), places * wide, 0, wide,
                       distance, 0, wide, 1, wide, wide};
      multiply(of, net.width, wide, of_output + (image * places + first) * wide, net.grid.numbers,
               input + image * distance + first * wide, c, c, net.grid.numbers);
    }
  }
}

template <class T>
void add_last_bias_gradient(const Grid& grid, const Images<T>& gradient, int64_t image, T* sums) {
  for (int64_t channel = 0; channel < gradient.channels; ++channel) {
    T sum(0);
    const T* const from = gradient.data + image * gradient.image_stride + channel * gradient.channel_stride;
    for (int64_t y = 0; y < grid.rows; ++y) {
      T of_row(0);  // a sum of sums rounds less, and is not one chain of additions
      for (int64_t x = 0; x < grid.columns; ++x) of_row += from[y * gradient.row_stride + x * gradient.column_stride];
      sum += of_row;
    }
    sums[channel] += sum;
  }
}

// Backward for the images from `begin` to `end`, `together` at a time; adds to `sums`, and to the gradient of x, whose
// images are `of_x_stride` apart. The gradients of the outputs are those of some channels, then of the others.
template <class T>
void backward_images(
    const Network<T>& net, const Images<T>& x, const std::array<Images<T>, 2>& gradients, const T* saved, T* of_x,
    int64_t of_x_stride, const Gradients<T>& sums, int64_t together, int64_t begin, int64_t end) {
  const Grid& grid = net.grid;
  const int64_t size = grid.count() * net.wide;
  Scratch<T> scratch;
  const Tile<T> tile{scratch.zeros(together * grid.plane() * net.kept),
                     scratch.zeros(together * grid.plane() * net.outputs),
                     scratch.numbers(together * size),
                     scratch.numbers(together * size),
                     scratch.zeros(grid.plane() * net.taps_kept + LANES<T>),
                     scratch.zeros(std::max(net.wide, net.taps_kept))};
  for (int64_t first = begin; first < end; first += together) {
    const int64_t images = std::min(together, end - first);
    const T* const hidden = saved + first * net.saved();
    for (int64_t index = 0; index < images; ++index) {
      const int64_t image = first + index;
      gather(x, image, grid, net.kept, tile.x + index * grid.plane() * net.kept);
      int64_t channel = 0;
      for (const Images<T>& gradient : gradients) {
        gather(gradient, image, grid, net.outputs, tile.of_y + index * grid.plane() * net.outputs + channel);
        add_last_bias_gradient(grid, gradient, image, sums.bias3 + channel);
        channel += gradient.channels;
      }
      backward_image(net, tile, index, hidden + index * net.saved(), of_x + image * of_x_stride, sums);
    }
    add_window_gradient(net, images, tile.x, net.kept, tile.of_hidden1, size, sums.first);
    add_place_gradient(net, images, tile.of_hidden2, hidden, net.saved(), sums.second);
    add_window_gradient(net, images, tile.of_y, net.outputs, hidden + size, net.saved(), sums.third);
  }
}
