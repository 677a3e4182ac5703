// The steps of a linear recurrence, one after the other, vectorised over the events of a batch.
//
// Included by simd/each.h, in the namespace of an instruction set: no include guard.

#include "simd/simd.h"

constexpr int ROWS = 8;  // that are computed together, so that no sum waits for itself

template <class T>
struct System {
  int64_t states, inputs, outputs, length;
  const T* matrix;  // (states + outputs, states + inputs)
  bool backwards;
  int64_t height() const { return states + outputs; }
  int64_t width() const { return states + inputs; }
  // Numbers of a tile: LANES positions of states and outputs, and the state before them; and of inputs.
  int64_t tile() const { return ((LANES<T> + 1) * height() + LANES<T> * inputs) * LANES<T>; }
};

// sums[o] += weights[o][k] * x[k] over `count` of k.
template <class T, int COUNT>
INVERTBENCH_INLINE void add_run(V<T> (&sums)[COUNT], const T* weights, int64_t width, const T* x, int64_t count) {
  for (int64_t k = 0; k < count; ++k) {
    const V<T> value = load(x + k * LANES<T>);
#pragma GCC unroll 8
    for (int o = 0; o < COUNT; ++o) sums[o] += Simd<T>::splat(weights[o * width + k]) * value;
  }
}

// Rows of the next state and output, in vectors of the same entry of several events.
template <class T, int COUNT>
void step(const System<T>& system, int64_t row, const T* state, const T* x, T* next) {
  const T* const weights = system.matrix + row * system.width();
  V<T> sums[COUNT] = {};
  add_run(sums, weights, system.width(), state, system.states);
  add_run(sums, weights + system.states, system.width(), x, system.inputs);
#pragma GCC unroll 8
  for (int o = 0; o < COUNT; ++o) store(next + (row + o) * LANES<T>, sums[o]);
}

template <class T>
void step_rows(const System<T>& system, const T* state, const T* x, T* next) {
  const int64_t height = system.height(), blocks = (height + ROWS - 1) / ROWS;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t row = block * height / blocks, count = (block + 1) * height / blocks - row;
    const auto run = count == 1   ? step<T, 1>
                     : count == 2 ? step<T, 2>
                     : count == 3 ? step<T, 3>
                     : count == 4 ? step<T, 4>
                     : count == 5 ? step<T, 5>
                     : count == 6 ? step<T, 6>
                     : count == 7 ? step<T, 7>
                                  : step<T, 8>;
    run(system, row, state, x, next);
  }
}

// Up to LANES events from x on; all further lanes repeat the last one.
template <class T>
void run_events(const System<T>& system, int64_t events, const T* x, int64_t stride, T* tile, T* y, T* states) {
  constexpr int64_t L = LANES<T>;
  const int64_t length = system.length, pitch = system.height() * L;
  T *const outcome = tile + pitch, *const inputs = outcome + L * pitch;
  std::fill(tile, outcome, T(0));
  for (int64_t done = 0; done < length; done += L) {
    const int64_t count = std::min(L, length - done), first = system.backwards ? length - done - count : done;
    const size_t bytes = size_t(count) * sizeof(T);
    V<T> square[L];
    for (int64_t j = 0; j < system.inputs; ++j) {
      for (int64_t e = 0; e < L; ++e) {
        square[e] = V<T>{};
        std::memcpy(&square[e], x + std::min(e, events - 1) * stride + j * length + first, bytes);
      }
      transpose<T>(square);
      for (int64_t i = 0; i < L; ++i) store(inputs + (i * system.inputs + j) * L, square[i]);
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t place = system.backwards ? count - 1 - i : i;
      step_rows(system, tile + i * pitch, inputs + place * system.inputs * L, outcome + i * pitch);
    }
    // The state before each position, and the output there.
    const auto take = [&](const T* from, T* to, int64_t to_stride) {
      for (int64_t i = 0; i < count; ++i) square[system.backwards ? count - 1 - i : i] = load(from + i * pitch);
      transpose<T>(square);
      for (int64_t e = 0; e < events; ++e) std::memcpy(to + e * to_stride + first, &square[e], bytes);
    };
    for (int64_t k = 0; k < system.states; ++k) take(tile + k * L, states + k * length, system.states * length);
    for (int64_t o = 0; o < system.outputs; ++o) {
      take(outcome + (system.states + o) * L, y + o * length, system.outputs * length);
    }
    std::copy_n(tile + count * pitch, pitch, tile);
  }
}
