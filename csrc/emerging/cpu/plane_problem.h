// The operands of an Emerging convolution in planes (see emerging/cpu/planes.h), the same for every instruction set and
// for either precision.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "emerging/cpu/problem.h"
#include "scratch.h"

namespace invertbench::emerging {

// The most entries of any vector, beyond which no vector that starts at a pixel reaches.
template <typename T>
constexpr int64_t MOST_LANES = 64 / sizeof(T);

// Channels that are computed together. For each entry that is read: its distance from the output's pixel in the first
// plane, and one weight for each output.
template <typename T>
struct PlaneBlock {
  int64_t first, size;
  std::vector<int64_t> distances;
  std::vector<T> weights;
};

// A set of planes holds one event: a plane for each channel, `plane` numbers apart, rows `stride` apart; the first
// pixel is `margin` numbers from the start. With more than one copy, rows follow each other without a gap, and copy j
// of the planes holds each pixel's neighbour j columns away.
template <typename T>
struct Planes : Problem<T> {
  int64_t margin, stride, pixels, plane, copies;
  std::vector<PlaneBlock<T>> first, second;

  // Return how many numbers a set of planes holds.
  int64_t set() const { return copies * this->channels * plane; }
  // Return how many numbers both sets of planes hold, with what vectors read and write beyond their ends.
  int64_t numbers() const { return 2 * set() + margin + MOST_LANES<T>; }
};

// Set the sizes of the planes.
template <typename T>
void lay_out(Planes<T>& work) {
  const int64_t rows = work.rows(), columns = work.columns();
  const auto vectors = [&] { return (work.pixels + MOST_LANES<T> - 1) / MOST_LANES<T>; };
  work.copies = 1;
  work.stride = work.width + columns - 1;
  work.pixels = (work.height - 1) * work.stride + work.width;
  const int64_t with_gaps = vectors(), most_copies = 3;
  if (columns <= most_copies && work.height > 1) {
    const int64_t pixels = std::exchange(work.pixels, work.height * work.width);
    if (8 * vectors() < 7 * with_gaps) {  // gaps waste more than copies cost
      work.copies = columns;
      work.stride = work.width;
    } else {
      work.pixels = pixels;
    }
  }
  // The margin before a plane is the one behind its predecessor. All planes begin at a cache line.
  work.margin = rounded((rows - 1) * work.stride + (work.copies > 1 ? 0 : columns - 1), MOST_LANES<T>);
  work.plane = rounded(work.pixels, MOST_LANES<T>) + work.margin;
}

// Pack the taps of a masked kernel (channels, channels, kernel_rows, kernel_columns) that the mask keeps and that an
// event can reach; masked entries are not read. w1 looks down and to the right, with the lower triangle of its centre;
// w2 (`turned`) the other way about.
template <typename T>
std::vector<PlaneBlock<T>> pack_blocks(const Planes<T>& work, const T* weight, bool turned) {
  const int64_t channels = work.channels, rows = work.rows(), columns = work.columns();
  const int64_t kernel_columns = work.kernel_columns, taps = work.kernel_rows * kernel_columns;
  const int64_t parts = (channels + LARGEST_BLOCK - 1) / LARGEST_BLOCK;
  std::vector<PlaneBlock<T>> blocks;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t first = part * channels / parts, end = (part + 1) * channels / parts;
    PlaneBlock<T> block{first, end - first, {}, {}};
    block.distances.reserve(rows * columns * channels);
    block.weights.reserve(rows * columns * channels * block.size);
    for (int64_t i = rows - 1; i >= 0; --i) {  // the centre, which is the largest, last: its rounding is not summed
      for (int64_t j = columns - 1; j >= 0; --j) {
        const bool centre = i == 0 && j == 0;
        const int64_t sign = turned ? -1 : 1, away = sign * (i * kernel_columns + j);
        const int64_t aside = work.copies > 1 ? j * channels * work.plane : sign * j;
        const int64_t least = centre && turned ? first : 0, most = centre && !turned ? end : channels;
        for (int64_t k = 0; k < most - least; ++k) {
          const int64_t input = turned ? most - 1 - k : least + k;  // the order of sums in tiles
          block.distances.push_back(input * work.plane + sign * i * work.stride + aside);
          for (int64_t output = first; output < end; ++output) {
            const bool masked = centre && (turned ? input < output : input > output);
            block.weights.push_back(masked ? T(0) : weight[(output * channels + input) * taps + taps / 2 + away]);
          }
        }
      }
    }
    blocks.push_back(std::move(block));
  }
  return blocks;
}

}  // namespace invertbench::emerging
