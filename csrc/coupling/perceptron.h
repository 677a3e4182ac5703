// The kernels of a coupling's perceptron, coupling/perceptron_kernels.cpp, and the operands of one call.
#pragma once

#include <cstdint>

#include "scratch.h"
#include "simd/prefetch.h"

namespace invertbench {

// Points of a tile: whole blocks of three vectors, and few enough for two tiles of 64 hidden floats in the first-level
// cache.
constexpr int64_t POINTS = 48;

// (event, channel, place) anywhere in memory; a point is an event's place.
template <class T>
struct Points {
  const T* data;
  int64_t event_stride, channel_stride, place_stride;
};

// The weights as the layers have them: (width, inputs), (width, width), (outputs, width), contiguous.
template <class T>
struct Perceptron {
  int64_t inputs, width, outputs, points, length;
  bool bounded;  // tanh; else ReLU
  const T *weight1, *bias1, *weight2, *bias2, *weight3, *bias3;
};

// Sums over points of the gradients of the weights, in the order of the weights, but for rows of `wide` numbers in
// `weight2`: whole vectors.
template <class T>
struct Sums {
  int64_t wide;
  T *weight1, *bias1, *weight2, *bias2, *weight3, *bias3;
};

// Forward for the tiles from `begin` to `end`; `hidden` keeps the second hidden values, tile after tile, if it is not
// null.
template <class T>
void forward_tiles(const Perceptron<T>& net, const Points<T>& x, T* hidden, T* y, int64_t begin, int64_t end);

// Backward for the same; adds to `sums`, and to the gradient of x, whose events are `of_x_stride` apart.
template <class T>
void backward_tiles(const Perceptron<T>& net, const Points<T>& x, const Points<T>& gradient, const T* hidden, T* of_x,
                    int64_t of_x_stride, const Sums<T>& sums, int64_t begin, int64_t end);

}  // namespace invertbench
