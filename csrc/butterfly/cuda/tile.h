// A tile of a butterfly stage: its matrices, and one phase in registers.
//
// The forward and the inverse pass, `apply_tiles`, written for any block of threads (see cuda/block.h).
#pragma once

#include "butterfly/cuda/gather.h"
#include "butterfly/cuda/matrices.h"

namespace invertbench {

// The tile entry of number `i` among those that unit `item` of a phase holds is base + i step.
template <int BITS>
INVERTBENCH_DEVICE int base_of(const TilePhase& phase, int item) {
  const int step = int(phase.step.divisor);
  return item + phase.step.divide(item) * step * ((1 << BITS) - 1);
}

// The first entry of pair `pair` of the 2^(BITS - 1) that differ in bit `bit` of their number.
INVERTBENCH_DEVICE int first_of(int pair, int bit) { return (pair >> bit) << (bit + 1) | (pair & ((1 << bit) - 1)); }

// Return the matrix of the pair whose first entry is `entry` of the tile; -1 if it is masked.
INVERTBENCH_DEVICE int64_t matrix_of(const TileStage& stage, const TileOrigin& origin, const TileFactor& factor,
                                     int entry) {
  const int row = stage.by_width.divide(entry);
  const int64_t q = origin.row + row, column = origin.column + entry - row * stage.width;
  if (q >= stage.count || column >= stage.columns) return -1;
  const int64_t block = q >> (factor.bit + 1);
  if (stage.shared) return factor.weight + block;
  return factor.weight + (block << factor.bit | (q & ((int64_t(1) << factor.bit) - 1))) * stage.columns + column;
}

// The matrices of a phase as its threads read them: of each factor, pair by pair, those of all units side by side;
// or, if the pairs of a block share one, one for each block. Call each(place, number) for those of one thread.
template <class Block, class Each>
INVERTBENCH_DEVICE void own_matrices(const Block& block, const TileStage& stage, const TileOrigin& origin,
                                     const TilePhase& phase, int thread, const Each& each) {
  const int pairs = 1 << (phase.bits - 1), items = stage.size >> phase.bits, step = int(phase.step.divisor);
  for (int f = phase.first; f < phase.last; ++f) {
    const TileFactor& factor = stage.factor[f];
    if (stage.shared) {
      const int count = stage.height >> (factor.bit + 1) > 0 ? stage.height >> (factor.bit + 1) : 1;
      for (int i = thread; i < count; i += block.threads()) {
        each(factor.place + i, matrix_of(stage, origin, factor, (i << (factor.bit + 1)) * stage.width));
      }
      continue;
    }
    for (int item = thread; item < items; item += block.threads()) {
      const int base = item + phase.step.divide(item) * step * (2 * pairs - 1);
      for (int pair = 0; pair < pairs; ++pair) {
        const int entry = base + first_of(pair, factor.bit - phase.low) * step;
        each(phase.place + ((f - phase.first) * pairs + pair) * items + item, matrix_of(stage, origin, factor, entry));
      }
    }
  }
}

// Copy a phase's matrices into shared memory, all of a thread's concurrently; valid after `arrived` and, if
// they are to be inverted, `invert_matrices`. `numbers` are the same shared memory as `matrices`.
template <class T, class Block, class Matrices, class Numbers>
INVERTBENCH_DEVICE void fetch_matrices(const Block& block, const TileStage& stage, const TileOrigin& origin,
                                       const TilePhase& phase, const Weights<T>& weights, Matrices matrices,
                                       Numbers numbers, int thread) {
  own_matrices(block, stage, origin, phase, thread, [&](int place, int64_t number) {
    if (number < 0) {
      matrices[place] = Matrix<T>{T(0), T(0), T(0), T(0)};
      return;
    }
    INVERTBENCH_UNROLLED
    for (int k = 0; k < 4; ++k) block.copy(numbers, 4 * place + k, weights.data + k * weights.pitch + number);
  });
}

// Called by the thread that copied them.
template <class T, class Block, class Matrices>
INVERTBENCH_DEVICE void invert_matrices(const Block& block, const TileStage& stage, const TileOrigin& origin,
                                        const TilePhase& phase, Matrices matrices, int thread) {
  own_matrices(block, stage, origin, phase, thread, [&](int place, int64_t number) {
    if (number >= 0) matrices[place] = inverse_of(Matrix<T>(matrices[place]));
  });
}

// The matrices that one unit of a phase uses.
template <class T, int BITS, bool SHARED, class Matrices>
struct UnitMatrices {
  const TileStage& stage;
  const TilePhase& phase;
  Matrices matrices;
  int item;

  INVERTBENCH_DEVICE Matrix<T> of(int factor, int bit, int pair) const {
    if (SHARED) {
      const int block = phase.step.divide(item) << (BITS - 1 - bit) | pair >> bit;
      return matrices[stage.factor[factor].place + block];
    }
    const int items = stage.size >> BITS;
    return matrices[phase.place + (((factor - phase.first) << (BITS - 1)) + pair) * items + item];
  }
};

template <class T>
INVERTBENCH_DEVICE void map_pair(const Matrix<T>& m, T& u, T& v) {
  const T y = m.a * u + m.b * v;
  v = m.c * u + m.d * v;
  u = y;
}

// One factor on the entries in registers; `bit` is known at run time, its possible values at compile time.
template <int BITS, int SAMPLES, class T, class Matrices>
INVERTBENCH_DEVICE void apply_factor(T (&x)[1 << BITS][SAMPLES], int bit, const Matrices& matrix) {
  INVERTBENCH_UNROLLED
  for (int b = 0; b < BITS; ++b) {
    if (b != bit) continue;
    INVERTBENCH_UNROLLED
    for (int pair = 0; pair < 1 << (BITS - 1); ++pair) {
      const Matrix<T> m = matrix(b, pair);
      const int first = first_of(pair, b);
      INVERTBENCH_UNROLLED
      for (int s = 0; s < SAMPLES; ++s) map_pair(m, x[first][s], x[first | 1 << b][s]);
    }
  }
}

template <int BITS, int SAMPLES, bool SHARED, class T, class Matrices, class Tile>
INVERTBENCH_DEVICE void apply_unit(const TileStage& stage, const TilePhase& phase, Matrices matrices, Tile tile,
                                   int item) {
  const int base = base_of<BITS>(phase, item), step = int(phase.step.divisor);
  const UnitMatrices<T, BITS, SHARED, Matrices> own{stage, phase, matrices, item};
  T x[1 << BITS][SAMPLES];
  INVERTBENCH_UNROLLED
  for (int i = 0; i < 1 << BITS; ++i) {
    INVERTBENCH_UNROLLED
    for (int s = 0; s < SAMPLES; ++s) x[i][s] = tile[s * stage.pitch + padded(base + i * step)];
  }
  INVERTBENCH_ROLLED
  for (int f = phase.first; f < phase.last; ++f) {
    apply_factor<BITS, SAMPLES>(x, stage.factor[f].bit - phase.low,
                                [&](int bit, int pair) { return own.of(f, bit, pair); });
  }
  INVERTBENCH_UNROLLED
  for (int i = 0; i < 1 << BITS; ++i) {
    INVERTBENCH_UNROLLED
    for (int s = 0; s < SAMPLES; ++s) tile[s * stage.pitch + padded(base + i * step)] = x[i][s];
  }
}

// All units of a phase, SAMPLES samples each.
template <int BITS, int SAMPLES, bool SHARED, class T, class Block, class Matrices, class Tile>
INVERTBENCH_DEVICE void apply_phase(const Block& block, const TileStage& stage, const TilePhase& phase,
                                    Matrices matrices, Tile tile, int thread) {
  const int items = stage.size >> BITS;
  INVERTBENCH_ROLLED
  for (int unit = thread; unit < items * (stage.samples / SAMPLES); unit += block.threads()) {
    const int sample = unit / items;
    apply_unit<BITS, SAMPLES, SHARED, T>(stage, phase, matrices, tile + sample * SAMPLES * stage.pitch,
                                         unit - sample * items);
  }
}

template <class T>
struct ApplyCall {
  TileStage stage;
  Weights<T> weights;
  Events x, y;  // may be the same
  int64_t dim, batch;
  LogDetCall<T> log_det;  // of the whole butterfly, for separate blocks; or empty
};

template <class T, bool KEPT>
struct ApplyState {
  Matrix<T> first[KEPT_FACTORS * KEPT_ENTRIES / 2], last[KEPT_FACTORS * KEPT_ENTRIES / 2];
};

template <class T>
struct ApplyState<T, false> {};

// Copy all matrices into shared memory; return when those of this thread, and all that it copied before, have
// arrived.
template <bool KEPT, class T, class Block>
INVERTBENCH_DEVICE void bring_matrices(Block& block, const TileStage& stage, const TileOrigin& origin,
                                       const Weights<T>& weights, int thread) {
  const auto matrices = block.template shared<Matrix<T>>(0);
  const auto numbers = block.template shared<T>(0);
  const auto each = [&](const auto& body) {
    for (int p = 0; p < stage.phases; ++p) {
      if (!KEPT || (p > 0 && p < stage.phases - 1)) body(stage.phase[p]);
    }
  };
  each([&](const TilePhase& phase) {
    fetch_matrices(block, stage, origin, phase, weights, matrices, numbers, thread);
  });
  block.commit();
  block.template arrived<0>();
  if (!weights.inverse) return;
  each([&](const TilePhase& phase) { invert_matrices<T>(block, stage, origin, phase, matrices, thread); });
}

// The matrices of one thread's unit, in registers.
template <class T, class Block>
INVERTBENCH_DEVICE void keep_matrices(const Block& block, const TileStage& stage, const TileOrigin& origin,
                                      const TilePhase& phase, const Weights<T>& weights, Matrix<T>* kept, int thread) {
  const int base = base_of<KEPT_BITS>(phase, thread), step = int(phase.step.divisor);
  INVERTBENCH_UNROLLED
  for (int f = 0; f < KEPT_FACTORS; ++f) {
    INVERTBENCH_UNROLLED
    for (int pair = 0; pair < KEPT_ENTRIES / 2; ++pair) {
      Matrix<T>& to = kept[f * KEPT_ENTRIES / 2 + pair];
      to = {T(0), T(0), T(0), T(0)};
      if (phase.first + f >= phase.last || thread >= stage.size / KEPT_ENTRIES) continue;
      const TileFactor& factor = stage.factor[phase.first + f];
      const int entry = base + first_of(pair, factor.bit - phase.low) * step;
      to = read_matrix(block, weights, matrix_of(stage, origin, factor, entry));
    }
  }
}

template <int SAMPLES, class T, class Tile>
INVERTBENCH_DEVICE void apply_kept(const TileStage& stage, const TilePhase& phase, const Matrix<T>* kept, Tile tile,
                                   int thread) {
  if (thread >= stage.size / KEPT_ENTRIES) return;
  const int base = base_of<KEPT_BITS>(phase, thread), step = int(phase.step.divisor);
  T x[KEPT_ENTRIES][SAMPLES];
  INVERTBENCH_UNROLLED
  for (int i = 0; i < KEPT_ENTRIES; ++i) {
    INVERTBENCH_UNROLLED
    for (int s = 0; s < SAMPLES; ++s) x[i][s] = tile[s * stage.pitch + padded(base + i * step)];
  }
  INVERTBENCH_UNROLLED
  for (int f = 0; f < KEPT_FACTORS; ++f) {
    if (phase.first + f >= phase.last) break;
    apply_factor<KEPT_BITS, SAMPLES>(x, stage.factor[phase.first + f].bit - phase.low,
                                     [&](int, int pair) { return kept[f * KEPT_ENTRIES / 2 + pair]; });
  }
  INVERTBENCH_UNROLLED
  for (int i = 0; i < KEPT_ENTRIES; ++i) {
    INVERTBENCH_UNROLLED
    for (int s = 0; s < SAMPLES; ++s) tile[s * stage.pitch + padded(base + i * step)] = x[i][s];
  }
}

// All samples of `chunk`, of `chunks`, through one tile of a stage: the matrices are read once, and while a group of
// samples is mapped the next one is being copied.
template <class T, bool SHARED, bool KEPT, class Block>
INVERTBENCH_DEVICE void apply_tiles(Block& block, const ApplyCall<T>& call, int tile_number, int chunk, int chunks) {
  constexpr int WIDE = sizeof(T) == 4 ? 2 : 1;  // samples of a unit of 32 entries
  using State = ApplyState<T, KEPT>;
  const TileStage& stage = call.stage;
  const TileOrigin origin = origin_of(stage, tile_number);
  const auto matrices = block.template shared<Matrix<T>>(0);
  const auto tiles = block.template shared<T>(stage.tiles_at);
  const int64_t groups = (call.batch + stage.samples - 1) / stage.samples;
  const int buffer_size = stage.samples * stage.pitch;
  const auto fetch = [&](int64_t group, int buffer, int thread) {
    load_tile<T>(block, stage, origin, call.x, call.dim, call.batch, group * stage.samples,
                 tiles + buffer * buffer_size, thread);
  };
  block.step([&](int thread, State& state) {
    if (stage.buffers == 2 && chunk < groups) fetch(chunk, 0, thread);
    bring_matrices<KEPT>(block, stage, origin, call.weights, thread);
    if constexpr (KEPT) {
      keep_matrices(block, stage, origin, stage.phase[0], call.weights, state.first, thread);
      keep_matrices(block, stage, origin, stage.phase[stage.phases - 1], call.weights, state.last, thread);
    }
  });
  int buffer = 0;
  INVERTBENCH_ROLLED
  for (int64_t group = chunk; group < groups; group += chunks) {
    const auto tile = tiles + buffer * buffer_size;
    block.step([&](int thread, State&) {
      if (stage.buffers == 1) {
        fetch(group, 0, thread);
        block.commit();
        block.template arrived<0>();
      } else {
        if (group + chunks < groups) fetch(group + chunks, 1 - buffer, thread);
        block.commit();
        block.template arrived<1>();
      }
    });
    INVERTBENCH_ROLLED
    for (int p = 0; p < stage.phases; ++p) {
      const TilePhase& phase = stage.phase[p];
      block.step([&](int thread, State& state) {
        if constexpr (KEPT) {
          if (p == 0) return apply_kept<4>(stage, phase, state.first, tile, thread);
          if (p == stage.phases - 1) return apply_kept<4>(stage, phase, state.last, tile, thread);
          if (phase.bits == 3) return apply_phase<3, 2, SHARED, T>(block, stage, phase, matrices, tile, thread);
          return apply_phase<4, 2, SHARED, T>(block, stage, phase, matrices, tile, thread);
        } else {
          if (phase.bits == 3) return apply_phase<3, 2 * WIDE, SHARED, T>(block, stage, phase, matrices, tile, thread);
          if (phase.bits == 4) return apply_phase<4, 2 * WIDE, SHARED, T>(block, stage, phase, matrices, tile, thread);
          return apply_phase<5, WIDE, SHARED, T>(block, stage, phase, matrices, tile, thread);
        }
      });
    }
    block.step([&](int thread, State&) {
      store_tile<T>(block, stage, origin, call.y, call.dim, call.batch, group * stage.samples, tile, thread);
    });
    if (stage.buffers == 2) buffer = 1 - buffer;
  }
}

// One block of a launch of `rows` rows of a block for each tile: if there is a log-det, the first row has no samples.
template <class T, bool SHARED, bool KEPT, class Block>
INVERTBENCH_DEVICE void apply_block(Block& block, const ApplyCall<T>& call, int tile, int row, int rows) {
  const int first = call.log_det.ranges > 0;
  if (row < first) return log_det_block(block, call.log_det, tile, call.stage.tiles);
  apply_tiles<T, SHARED, KEPT>(block, call, tile, row - first, rows - first);
}

}  // namespace invertbench
