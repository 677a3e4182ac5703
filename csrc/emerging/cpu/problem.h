// The operands of one call of an Emerging convolution or of its inverse.
#pragma once

#include <algorithm>
#include <cstdint>

// Loops over sums that shall stay in registers.
#define INVERTBENCH_UNROLL _Pragma("GCC unroll 8")

namespace invertbench::emerging {

// The most channels for which the sums of two vectors each stay in 16 registers.
constexpr int64_t LARGEST_BLOCK = 6;

// A batch of events (event, channel, row, column) and the size of both kernels.
struct Sizes {
  int64_t events, channels, height, width, kernel_rows, kernel_columns;

  // The taps that the mask keeps and that an event can reach.
  int64_t rows() const { return std::min(kernel_rows / 2 + 1, height); }
  int64_t columns() const { return std::min(kernel_columns / 2 + 1, width); }
};

// All contiguous.
template <typename T>
struct Problem : Sizes {
  const T* input;
  const T* weight1;
  const T* weight2;
  const T* bias;  // nullptr for none
  T* output;
  T* between;  // w1 * x; nullptr if not wanted
};

}  // namespace invertbench::emerging
