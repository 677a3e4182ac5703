// A convolution of padded planes (see convolution/frame.h).
//
// Included by simd/each.h, in the namespace of an instruction set: no include guard.

#include "simd/simd.h"

// Outputs that are computed together, and vectors of positions: their sums fill the registers.
constexpr int OUTPUTS = INVERTBENCH_BYTES == 64 ? 6 : 4, VECTORS = INVERTBENCH_BYTES == 64 ? 4 : 2;

// `COUNT` outputs at `WIDTH` vectors of positions. The weights of an entry lie side by side for all outputs.
template <class T, int COUNT, int WIDTH>
void convolve_block(const int64_t* distances, int64_t entries, const T* weights, int64_t outputs, const T* x, T* y,
                    int64_t pitch) {
  constexpr int L = LANES<T>;
  V<T> sums[COUNT][WIDTH] = {};
  for (int64_t e = 0; e < entries; ++e, weights += outputs) {
    V<T> values[WIDTH];
#pragma GCC unroll 4
    for (int v = 0; v < WIDTH; ++v) values[v] = load(x + distances[e] + v * L);
#pragma GCC unroll 6
    for (int o = 0; o < COUNT; ++o) {
      const V<T> weight = Simd<T>::splat(weights[o]);
#pragma GCC unroll 4
      for (int v = 0; v < WIDTH; ++v) sums[o][v] += weight * values[v];
    }
  }
#pragma GCC unroll 6
  for (int o = 0; o < COUNT; ++o) {
#pragma GCC unroll 4
    for (int v = 0; v < WIDTH; ++v) store(y + o * pitch + v * L, sums[o][v]);
  }
}

template <class T, int COUNT>
void convolve_outputs(const std::vector<int64_t>& distances, const T* weights, int64_t outputs, const T* x, T* y,
                      int64_t pitch) {
  const int64_t entries = int64_t(distances.size()), vectors = pitch / LANES<T>;
  const int64_t blocks = (vectors + VECTORS - 1) / VECTORS;
  for (int64_t block = 0; block < blocks; ++block) {  // of nearly equal widths: one vector takes as long as several
    const int64_t first = block * vectors / blocks, at = first * LANES<T>;
    const int64_t width = (block + 1) * vectors / blocks - first;
    const auto run = width == 1   ? convolve_block<T, COUNT, 1>
                     : width == 2 ? convolve_block<T, COUNT, 2>
                     : width == 3 ? convolve_block<T, COUNT, 3>
                                  : convolve_block<T, COUNT, 4>;
    run(distances.data(), entries, weights, outputs, x + at, y + at, pitch);
  }
}

// From the padded planes of an event, planes of `outputs` channels, `pitch` numbers each. weights: (entries, outputs).
template <class T>
void convolve(const std::vector<int64_t>& distances, const T* weights, int64_t outputs, const T* x, T* y,
              int64_t pitch) {
  const int64_t blocks = (outputs + OUTPUTS - 1) / OUTPUTS;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t o = block * outputs / blocks, count = (block + 1) * outputs / blocks - o;
    const auto run = count == 1   ? convolve_outputs<T, 1>
                     : count == 2 ? convolve_outputs<T, 2>
                     : count == 3 ? convolve_outputs<T, 3>
                     : count == 4 ? convolve_outputs<T, 4>
                     : count == 5 ? convolve_outputs<T, 5>
                                  : convolve_outputs<T, 6>;
    run(distances, weights + o, outputs, x, y + o * pitch, pitch);
  }
}
