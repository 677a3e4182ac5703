// The backward pass of a stage of a butterfly, with the gradients of its matrices; see butterfly/cuda/tile.h.
//
// A thread keeps one unit of 8 entries of each of at most two phases, and the gradients of their matrices, for all
// samples of its block; values between the factors are recomputed. Every block writes its gradients to its own
// place, and `finish_matrices` adds them in order and in double precision: the same device gives the same bits.
#pragma once

#include "butterfly/cuda/tile.h"

namespace invertbench {

constexpr int KEPT_PAIRS = KEPT_ENTRIES / 2;

template <class T>
struct BackwardCall {
  TileStage stage;
  Weights<T> weights;
  Events x, dy, dx;  // dy and dx may be the same
  T* partials;       // (copies, 4, pitch): of the stage's matrices, by `chunk` and, if they are shared, column tile
  int64_t dim, batch;
};

template <class T>
struct BackwardState {
  Matrix<T> gradient[2][KEPT_FACTORS * KEPT_PAIRS];
};

INVERTBENCH_DEVICE int64_t copies_of(const TileStage& stage, int64_t chunks) {
  return stage.shared ? chunks * stage.column_tiles : chunks;
}

// One sample of one unit: `tile` holds the phase's input, `grads` the gradient of its output and then of its input.
template <bool SHARED, class T, class Matrices, class Tile>
INVERTBENCH_DEVICE void backward_unit(const TileStage& stage, const TilePhase& phase, Matrices matrices, Tile tile,
                                      Tile grads, Matrix<T>* gradient, int item) {
  const int base = base_of<KEPT_BITS>(phase, item), step = int(phase.step.divisor);
  const UnitMatrices<T, KEPT_BITS, SHARED, Matrices> own{stage, phase, matrices, item};
  T x[KEPT_FACTORS][KEPT_ENTRIES][1], dy[KEPT_ENTRIES];
  INVERTBENCH_UNROLLED
  for (int i = 0; i < KEPT_ENTRIES; ++i) {
    const int at = padded(base + i * step);
    x[0][i][0] = tile[at];
    dy[i] = grads[at];
  }
  INVERTBENCH_UNROLLED
  for (int f = 0; f + 1 < KEPT_FACTORS; ++f) {
    if (phase.first + f + 1 >= phase.last) break;
    INVERTBENCH_UNROLLED
    for (int i = 0; i < KEPT_ENTRIES; ++i) x[f + 1][i][0] = x[f][i][0];
    apply_factor<KEPT_BITS, 1>(x[f + 1], stage.factor[phase.first + f].bit - phase.low,
                               [&](int bit, int pair) { return own.of(phase.first + f, bit, pair); });
  }
  INVERTBENCH_UNROLLED
  for (int f = KEPT_FACTORS - 1; f >= 0; --f) {
    if (phase.first + f >= phase.last) continue;
    const int own_bit = stage.factor[phase.first + f].bit - phase.low;
    INVERTBENCH_UNROLLED
    for (int bit = 0; bit < KEPT_BITS; ++bit) {
      if (bit != own_bit) continue;
      INVERTBENCH_UNROLLED
      for (int pair = 0; pair < KEPT_PAIRS; ++pair) {
        const Matrix<T> m = own.of(phase.first + f, bit, pair);
        Matrix<T>& sum = gradient[f * KEPT_PAIRS + pair];
        const int first = first_of(pair, bit), second = first | 1 << bit;
        const T u = x[f][first][0], v = x[f][second][0], du = dy[first], dv = dy[second];
        sum.a += du * u;
        sum.b += du * v;
        sum.c += dv * u;
        sum.d += dv * v;
        dy[first] = m.a * du + m.c * dv;
        dy[second] = m.b * du + m.d * dv;
      }
    }
  }
  INVERTBENCH_UNROLLED
  for (int i = 0; i < KEPT_ENTRIES; ++i) grads[padded(base + i * step)] = dy[i];
}

template <class T>
INVERTBENCH_DEVICE T entry_of(const Matrix<T>& m, int k) {
  return k == 0 ? m.a : k == 1 ? m.b : k == 2 ? m.c : m.d;
}

// Every matrix belongs to one thread of one block for each chunk of the samples: write its gradient.
template <class T, class Block>
INVERTBENCH_DEVICE void write_own(const Block& block, const BackwardCall<T>& call, const TileOrigin& origin, int chunk,
                                  const TilePhase& phase, const Matrix<T>* gradient, int thread) {
  const TileStage& stage = call.stage;
  const int base = base_of<KEPT_BITS>(phase, thread), step = int(phase.step.divisor);
  INVERTBENCH_UNROLLED
  for (int f = 0; f < KEPT_FACTORS; ++f) {
    if (phase.first + f >= phase.last) break;
    const TileFactor& factor = stage.factor[phase.first + f];
    INVERTBENCH_UNROLLED
    for (int pair = 0; pair < KEPT_PAIRS; ++pair) {
      const int entry = base + first_of(pair, factor.bit - phase.low) * step;
      const int64_t number = matrix_of(stage, origin, factor, entry);
      if (number < 0) continue;
      INVERTBENCH_UNROLLED
      for (int k = 0; k < 4; ++k) {
        block.store(call.partials + (int64_t(chunk) * 4 + k) * call.weights.pitch + number,
                    entry_of(gradient[f * KEPT_PAIRS + pair], k));
      }
    }
  }
}

// The pairs of a block share a matrix: add the threads' sums, in an order that depends on the tile alone.
template <class T, class Block>
INVERTBENCH_DEVICE void write_shared(Block& block, const BackwardCall<T>& call, const TileOrigin& origin, int tile,
                                     int chunk) {
  const TileStage& stage = call.stage;
  const auto terms = block.template shared<T>(0);  // entry k of the matrices of pairs, block after block
  const auto sums = block.template shared<T>(2 * stage.size * int(sizeof(T)));
  const int64_t copy = int64_t(chunk) * stage.column_tiles + tile % stage.column_tiles;
  INVERTBENCH_UNROLLED
  for (int p = 0; p < 2; ++p) {
    if (p >= stage.phases) break;
    const TilePhase& phase = stage.phase[p];
    INVERTBENCH_UNROLLED
    for (int f = 0; f < KEPT_FACTORS; ++f) {
      if (phase.first + f >= phase.last) break;
      const TileFactor& factor = stage.factor[phase.first + f];
      const int length = stage.width << factor.bit;               // pairs of a block
      const int blocks = stage.size / (2 * length) > 0 ? stage.size / (2 * length) : 1;
      const int parts = length < 32 ? length : 32;
      block.step([&](int thread, BackwardState<T>& state) {
        if (thread >= stage.size / KEPT_ENTRIES) return;
        const int base = base_of<KEPT_BITS>(phase, thread), step = int(phase.step.divisor);
        INVERTBENCH_UNROLLED
        for (int pair = 0; pair < KEPT_PAIRS; ++pair) {
          const int entry = base + first_of(pair, factor.bit - phase.low) * step;
          const int number = entry / (2 * length), within = entry - number * 2 * length;
          INVERTBENCH_UNROLLED
          for (int k = 0; k < 4; ++k) {
            terms[k * (stage.size / 2) + number * length + within] =
                entry_of(state.gradient[p][f * KEPT_PAIRS + pair], k);
          }
        }
      });
      block.step([&](int thread, BackwardState<T>&) {
        for (int i = thread; i < 4 * blocks * parts; i += block.threads()) {
          const int number = i / parts, part = i - number * parts;  // k and the block
          T sum = 0;
          for (int j = part; j < length; j += parts) sum += T(terms[number * length + j]);
          sums[i] = sum;
        }
      });
      block.step([&](int thread, BackwardState<T>&) {
        for (int i = thread; i < 4 * blocks; i += block.threads()) {
          const int k = i / blocks, number = i - k * blocks;
          const int64_t q = origin.row + (int64_t(number) << (factor.bit + 1));
          if (q >= stage.count) continue;
          T sum = 0;
          for (int part = 0; part < parts; ++part) sum += T(sums[i * parts + part]);
          block.store(call.partials + (copy * 4 + k) * call.weights.pitch + factor.weight + (q >> (factor.bit + 1)),
                      sum);
        }
      });
    }
  }
}

template <class T, bool SHARED, class Block>
INVERTBENCH_DEVICE void backward_tiles(Block& block, const BackwardCall<T>& call, int tile_number, int chunk,
                                       int chunks) {
  using State = BackwardState<T>;
  const TileStage& stage = call.stage;
  const TileOrigin origin = origin_of(stage, tile_number);
  const auto matrices = block.template shared<Matrix<T>>(0);
  const auto input = block.template shared<T>(stage.tiles_at);
  const int tile_size = stage.samples * stage.pitch, units = stage.size / KEPT_ENTRIES;
  const auto grads = input + tile_size;
  const auto between = grads + tile_size;  // between two phases; unused with one
  const int64_t groups = (call.batch + stage.samples - 1) / stage.samples;
  block.step([&](int thread, State& state) {
    bring_matrices<false>(block, stage, origin, call.weights, thread);
    INVERTBENCH_UNROLLED
    for (int p = 0; p < 2; ++p) {
      INVERTBENCH_UNROLLED
      for (int i = 0; i < KEPT_FACTORS * KEPT_PAIRS; ++i) state.gradient[p][i] = {T(0), T(0), T(0), T(0)};
    }
  });
  INVERTBENCH_ROLLED
  for (int64_t group = chunk; group < groups; group += chunks) {
    const int64_t sample = group * stage.samples;
    block.step([&](int thread, State&) {
      load_tile<T>(block, stage, origin, call.x, call.dim, call.batch, sample, input, thread);
      load_tile<T>(block, stage, origin, call.dy, call.dim, call.batch, sample, grads, thread);
      block.commit();
      block.template arrived<0>();
    });
    if (stage.phases == 2) {
      block.step([&](int thread, State&) {
        if (thread >= units) return;
        INVERTBENCH_ROLLED
        for (int s = 0; s < stage.samples; ++s) {
          const TilePhase& phase = stage.phase[0];
          const int base = base_of<KEPT_BITS>(phase, thread), step = int(phase.step.divisor), at = s * stage.pitch;
          const UnitMatrices<T, KEPT_BITS, SHARED, decltype(matrices)> own{stage, phase, matrices, thread};
          T x[KEPT_ENTRIES][1];
          INVERTBENCH_UNROLLED
          for (int i = 0; i < KEPT_ENTRIES; ++i) x[i][0] = input[at + padded(base + i * step)];
          INVERTBENCH_ROLLED
          for (int f = phase.first; f < phase.last; ++f) {
            apply_factor<KEPT_BITS, 1>(x, stage.factor[f].bit - phase.low,
                                       [&](int bit, int pair) { return own.of(f, bit, pair); });
          }
          INVERTBENCH_UNROLLED
          for (int i = 0; i < KEPT_ENTRIES; ++i) between[at + padded(base + i * step)] = x[i][0];
        }
      });
      block.step([&](int thread, State& state) {
        if (thread >= units) return;
        INVERTBENCH_ROLLED
        for (int s = 0; s < stage.samples; ++s) {
          backward_unit<SHARED>(stage, stage.phase[1], matrices, between + s * stage.pitch, grads + s * stage.pitch,
                                state.gradient[1], thread);
        }
      });
    }
    block.step([&](int thread, State& state) {
      if (thread >= units) return;
      INVERTBENCH_ROLLED
      for (int s = 0; s < stage.samples; ++s) {
        backward_unit<SHARED>(stage, stage.phase[0], matrices, input + s * stage.pitch, grads + s * stage.pitch,
                              state.gradient[0], thread);
      }
    });
    block.step([&](int thread, State&) {
      store_tile<T>(block, stage, origin, call.dx, call.dim, call.batch, sample, grads, thread);
    });
  }
  if constexpr (SHARED) {
    write_shared(block, call, origin, tile_number, chunk);
  } else {
    block.step([&](int thread, State& state) {
      if (thread >= units) return;
      INVERTBENCH_UNROLLED
      for (int p = 0; p < 2; ++p) {
        if (p < stage.phases) write_own(block, call, origin, chunk, stage.phase[p], state.gradient[p], thread);
      }
    });
  }
}

template <class T>
struct FinishCall {
  TileStage stage;
  Weights<T> weights;
  const T* partials;
  int64_t copies;
  const T* grad_log_det;  // one number, or nullptr
  T* gradient;            // (2, 2, pitch)
};

// Return how many pairs use matrix `number` of a stage.
INVERTBENCH_DEVICE double uses_of(const TileStage& stage, int64_t number) {
  if (!stage.shared) return 1;
  for (int f = 0; f < stage.factors; ++f) {
    const TileFactor& factor = stage.factor[f];
    const int64_t end = factor.weight + (stage.count >> (factor.bit + 1));
    if (number >= factor.weight && number < end) return double(stage.columns << factor.bit);
  }
  return 0;
}

// The gradient of one matrix: the sum g of its parts, the log-det's gradient, and, if the matrices were inverted on
// reading, -M^T G M^T.
template <class T, class Block>
INVERTBENCH_DEVICE void finish_matrix(const Block& block, const FinishCall<T>& call, int64_t number, double (&g)[4]) {
  const int64_t pitch = call.weights.pitch;
  const Matrix<T> m = read_matrix(block, call.weights, number);
  const double a = m.a, b = m.b, c = m.c, d = m.d;
  if (call.weights.inverse) {
    const double first = a * g[0] + c * g[2], second = a * g[1] + c * g[3];
    const double third = b * g[0] + d * g[2], fourth = b * g[1] + d * g[3];
    g[0] = -(first * a + second * b);
    g[1] = -(first * c + second * d);
    g[2] = -(third * a + fourth * b);
    g[3] = -(third * c + fourth * d);
  } else if (call.grad_log_det != nullptr) {
    const double each = double(block.load(call.grad_log_det)) * uses_of(call.stage, number) / (a * d - b * c);
    g[0] += d * each;
    g[1] -= c * each;
    g[2] -= b * each;
    g[3] += a * each;
  }
  INVERTBENCH_UNROLLED
  for (int k = 0; k < 4; ++k) block.store(call.gradient + k * pitch + number, T(g[k]));
}

constexpr int FINISH_MATRICES = 32;  // of a block, side by side in memory
constexpr int FINISH_PARTS = 8;      // threads that share the sum of a matrix
constexpr int FINISH_THREADS = FINISH_MATRICES * FINISH_PARTS;
constexpr int FINISH_BYTES = FINISH_THREADS * 4 * int(sizeof(double));

// Finish the matrices of block `number` of a stage: add their parts in a fixed order.
template <class T, class Block>
INVERTBENCH_DEVICE void finish_matrices(Block& block, const FinishCall<T>& call, int number) {
  const auto terms = block.template shared<double>(0);
  const int64_t first = call.stage.weights_begin + int64_t(number) * FINISH_MATRICES;
  const int64_t end = call.stage.weights_begin + call.stage.weights_count;
  block.step([&](int thread, Nothing&) {
    const int64_t matrix = first + thread % FINISH_MATRICES;
    double g[4] = {0, 0, 0, 0};
    INVERTBENCH_BY_EIGHT  // number of concurrent loads
    for (int64_t copy = thread / FINISH_MATRICES; copy < call.copies; copy += FINISH_PARTS) {
      if (matrix >= end) break;
      INVERTBENCH_UNROLLED
      for (int k = 0; k < 4; ++k) {
        g[k] += double(block.load(call.partials + (copy * 4 + k) * call.weights.pitch + matrix));
      }
    }
    INVERTBENCH_UNROLLED
    for (int k = 0; k < 4; ++k) terms[k * FINISH_THREADS + thread] = g[k];
  });
  block.step([&](int thread, Nothing&) {
    if (thread >= FINISH_MATRICES || first + thread >= end) return;
    double g[4] = {0, 0, 0, 0};
    for (int part = 0; part < FINISH_PARTS; ++part) {
      INVERTBENCH_UNROLLED
      for (int k = 0; k < 4; ++k) g[k] += double(terms[k * FINISH_THREADS + part * FINISH_MATRICES + thread]);
    }
    finish_matrix(block, call, first + thread, g);
  });
}

}  // namespace invertbench
