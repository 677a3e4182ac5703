// The operands of one call of a coupling's perceptron, the same for every instruction set.
#pragma once

#include <cstdint>

#include "coupling/scratch.h"

namespace invertbench {

// Points of a tile. Whole blocks of six rows, and few enough for two tiles of 64 hidden floats in the first-level cache.
constexpr int64_t POINTS = 48;

// (event, channel, place) anywhere in memory; a point is an event's place.
template <class T>
struct Points {
  const T* data;
  int64_t event_stride, channel_stride, place_stride;
};

// The weights, in the order in which products read them. `wide`, `wide_in` and `wide_out` are the numbers of hidden
// values, inputs and outputs, rounded up to whole vectors; the padding is zero.
template <class T>
struct Perceptron {
  int64_t inputs, width, outputs, wide, wide_in, wide_out, points, length;
  bool bounded;           // tanh; else ReLU
  const T* first;         // (inputs + 1, wide), the last row the bias
  const T* second;        // (width, wide): input, output
  const T* third;         // (width, wide_out)
  const T* bias2;         // (wide)
  const T* bias3;         // (wide_out)
  const T* first_rows;    // (width, wide_in), as the layer has it
  const T* second_rows;   // (width, wide)
  const T* third_rows;    // (outputs, wide)
};

// Sums over points of the gradients of the weights.
template <class T>
struct Sums {
  T *first, *second, *third;  // (inputs + 1, wide), (width, wide), (outputs, wide)
  T *bias2, *bias3;           // (wide), (outputs)
};

}  // namespace invertbench
