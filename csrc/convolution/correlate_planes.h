// The gradient of a convolution's kernel, from padded planes (see convolution/frame.h).
//
// Included by simd/each.h, in the namespace of an instruction set: no include guard.

#include "simd/simd.h"

// Outputs that are computed together, and entries of the kernel: their sums fill the registers.
constexpr int CORRELATED = INVERTBENCH_BYTES == 64 ? 4 : 2, ENTRIES = 4;

// Add products of `COUNT` planes of gradients with ENTRIES shifts of padded planes, summed over `length` positions of
// some events, to sums of double precision; the planes of events begin `x_event` and `g_event` numbers apart.
template <class T, int COUNT>
void correlate_block(const int64_t* distances, int64_t events, const T* x, int64_t x_event, const T* g,
                     int64_t g_event, int64_t pitch, int64_t length, double* sums, int64_t entries) {
  V<T> found[COUNT][ENTRIES] = {};
  for (int64_t n = 0; n < events; ++n, x += x_event, g += g_event) {
    for (int64_t at = 0; at < length; at += LANES<T>) {
      V<T> values[ENTRIES];
#pragma GCC unroll 4
      for (int e = 0; e < ENTRIES; ++e) values[e] = load(x + distances[e] + at);
#pragma GCC unroll 4
      for (int o = 0; o < COUNT; ++o) {
        const V<T> gradient = load(g + o * pitch + at);
#pragma GCC unroll 4
        for (int e = 0; e < ENTRIES; ++e) found[o][e] += gradient * values[e];
      }
    }
  }
#pragma GCC unroll 4
  for (int o = 0; o < COUNT; ++o) add_sums(found[o], sums + o * entries);
}

// Add the gradients of a kernel from some events to `sums`, (outputs, entries). There is a whole number of ENTRIES.
// No sum of single precision has more than LONGEST terms.
template <class T>
void correlate(const std::vector<int64_t>& distances, int64_t outputs, int64_t events, const T* x, int64_t x_event,
               const T* g, int64_t g_event, int64_t pitch, double* sums) {
  constexpr int64_t LONGEST = 128;
  const int64_t entries = int64_t(distances.size()), most = LONGEST * LANES<T>;
  const int64_t together = std::max<int64_t>(most / pitch, 1);
  for (int64_t n = 0; n < events; n += together, x += together * x_event, g += together * g_event) {
    const int64_t some = std::min(together, events - n);
    for (int64_t e = 0; e < entries; e += ENTRIES) {
      for (int64_t o = 0, count; o < outputs; o += count) {
        count = std::min<int64_t>(CORRELATED, outputs - o);
        const auto run = count == 1   ? correlate_block<T, 1>
                         : count == 2 ? correlate_block<T, 2>
                         : count == 3 ? correlate_block<T, 3>
                                      : correlate_block<T, 4>;
        for (int64_t at = 0; at < pitch; at += most) {
          run(distances.data() + e, some, x + at, x_event, g + o * pitch + at, g_event, pitch,
              std::min(most, pitch - at), sums + o * entries + e, entries);
        }
      }
    }
  }
}
