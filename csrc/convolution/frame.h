// Events padded for a convolution, laid out so that a tap is one distance for every position.
//
// A plane holds one channel of an event: padded rows, `stride` numbers apart. Position (r, s) of the event begins its
// window at r * stride + s, and tap (a, b) lies a * stride + b further. The positions are computed in the order of
// memory, those of the padding between two rows as well, whose results nothing reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "scratch.h"

namespace invertbench {

// An event of `height` rows, 1 of a sequence, and a kernel; `above` rows and `left` columns of padding come before the
// event, and as many after it as the kernel needs. They repeat the event if `circular`, else they are zero.
struct Frame {
  int64_t height, width, rows, columns, above, left;
  bool circular;

  int64_t stride() const { return width + columns - 1; }
  int64_t positions() const { return (height - 1) * stride() + width; }
  // Numbers of a plane of results, and of one of a padded event with what vectors read beyond it.
  int64_t results(int64_t lanes) const { return rounded(positions(), lanes); }
  int64_t plane(int64_t lanes) const { return rounded((height + rows - 1) * stride(), lanes) + lanes; }
  // The distances of all taps of all channels, in the order of a weight's entries (channel, tap row, tap column).
  std::vector<int64_t> distances(int64_t channels, int64_t lanes) const {
    std::vector<int64_t> found;
    for (int64_t channel = 0; channel < channels; ++channel) {
      for (int64_t a = 0; a < rows; ++a) {
        for (int64_t b = 0; b < columns; ++b) found.push_back(channel * plane(lanes) + a * stride() + b);
      }
    }
    return found;
  }
};

// Copy a channel of an event, padded, into its plane of `size` numbers; those behind it are zero.
template <class T>
void pad(const Frame& frame, const T* event, int64_t size, T* plane) {
  T* const end = plane + size;
  const int64_t width = frame.width, stride = frame.stride(), after = frame.columns - 1 - frame.left;
  for (int64_t r = 0; r < frame.height + frame.rows - 1; ++r, plane += stride) {
    int64_t row = r - frame.above;
    if (frame.circular) row = (row + frame.height) % frame.height;
    if (row < 0 || row >= frame.height) {
      std::fill(plane, plane + stride, T(0));
      continue;
    }
    const T* const from = event + row * width;
    T* const to = plane + frame.left;
    for (int64_t s = 0; s < width; ++s) to[s] = from[s];
    for (int64_t s = 0; s < frame.left; ++s) plane[s] = frame.circular ? from[width - frame.left + s] : T(0);
    for (int64_t s = 0; s < after; ++s) to[width + s] = frame.circular ? from[s] : T(0);
  }
  std::fill(plane, end, T(0));
}

// Copy a channel of an event into a plane of results, with zeros between its rows and behind the last, up to `size`.
template <class T>
void spread(const Frame& frame, const T* event, int64_t size, T* plane) {
  T* const end = plane + size;
  for (int64_t r = 0; r < frame.height; ++r, event += frame.width) {
    for (int64_t s = 0; s < frame.width; ++s) plane[s] = event[s];
    T* const next = std::min(plane + frame.stride(), end);
    std::fill(plane + frame.width, next, T(0));
    plane = next;
  }
  std::fill(plane, end, T(0));
}

}  // namespace invertbench
