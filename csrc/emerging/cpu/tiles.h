// The operands of an Emerging convolution or its inverse in tiles (see emerging/cpu/events.h), the same for every
// instruction set and for either precision.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "emerging/cpu/problem.h"

// Entries of two vectors, picked by number, as a vector; INDEX is the integer type of the entries' size.
#if defined(__clang__)
#define INVERTBENCH_SHUFFLE(INDEX, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define INVERTBENCH_SHUFFLE(INDEX, a, b, ...) \
  __builtin_shuffle(a, b, (INDEX __attribute__((vector_size(16)))){__VA_ARGS__})
#endif

namespace invertbench::emerging {

// Channels of one pixel that are computed together. Their weights are packed in the order in which they are read, a
// run of inputs for each row of taps: at ((i * columns + j) * channels + input) * size + output, where i counts rows
// up and j columns from the leftmost tap on, all in the order of the solve.
template <typename T>
struct Block {
  int64_t first, size;
  const T* weights;
  const T* reciprocals;  // of the diagonal
};

// A causal convolution with a lower triangular centre: y[r, s] = sum over 0 <= i < rows, 0 <= j < columns of
// A[i, j] x[r - i, s - j].
template <typename T>
struct CausalTaps {
  int64_t channels, rows, columns;
  std::vector<T> numbers;
  std::vector<Block<T>> blocks;
};

template <typename T>
struct Tiled : Problem<T> {
  CausalTaps<T> first, second;
};

// Pack the taps of a masked kernel (channels, channels, kernel_rows, kernel_columns) that the mask keeps and that
// an event can reach; masked entries are not read. w1 looks down and to the right and is solved from the last pixel
// to the first, w2 (`turned`) the other way about, with the channels downwards.
template <typename T>
CausalTaps<T> pack_taps(const Sizes& sizes, const T* weight, bool turned) {
  const int64_t channels = sizes.channels, rows = sizes.rows(), columns = sizes.columns();
  const int64_t kernel_columns = sizes.kernel_columns, taps = sizes.kernel_rows * kernel_columns;
  const int64_t count = rows * columns * channels * channels;
  const auto entry = [=](int64_t output, int64_t input, int64_t i, int64_t j) {
    if (turned) {
      output = channels - 1 - output;
      input = channels - 1 - input;
    }
    const int64_t away = i * kernel_columns + j;
    return weight[(output * channels + input) * taps + taps / 2 + (turned ? -away : away)];
  };
  CausalTaps<T> packed{channels, rows, columns, std::vector<T>(count + channels), {}};
  T* next = packed.numbers.data();
  T* reciprocals = next + count;
  for (int64_t output = 0; output < channels; ++output) reciprocals[output] = T(1) / entry(output, output, 0, 0);
  const int64_t parts = (channels + LARGEST_BLOCK - 1) / LARGEST_BLOCK;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t first = part * channels / parts, end = (part + 1) * channels / parts;
    packed.blocks.push_back({first, end - first, next, reciprocals + first});
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = columns - 1; j >= 0; --j) {
        for (int64_t input = 0; input < channels; ++input) {
          // The centre's upper triangle is masked; nothing reads it.
          for (int64_t output = first; output < end; ++output) *next++ = entry(output, input, i, j);
        }
      }
    }
  }
  return packed;
}

}  // namespace invertbench::emerging
