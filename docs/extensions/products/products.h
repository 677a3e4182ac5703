// Products of dense blocks with parts of events: y[n, o, r, c] = sum over q of B[o, c, r, q] x[n, o, q, c].
//
// A candidate for the second design of the butterfly on a device, whose levels are multiplied out (multiplied_out.py).
// It is no part of the library before a device has shown that it pays. A block of threads holds the matrices of PAIRS
// pairs (o, c), and maps groups of SAMPLES samples one after another: read into shared memory, multiplied in registers
// of 8 rows x 8 samples, written back through shared memory.
#pragma once

#include "cuda/block.h"

namespace invertbench {

struct ProductCall {
  const float* blocks;  // (o, c, q, r): each matrix transposed
  const float* x;       // (batch, dim)
  float* y;
  int64_t dim, batch;
  int inner;            // number of c
  int pairs;            // of (o, c)
  int used;             // pairs of a tile; where there are fewer c than PAIRS, all c of some o
  Divisor by_inner, by_pairs, by_eights;  // of a place by `inner` and by `used`, and of eights of a tile's entries
};

struct alignas(16) Four {
  float v[4];
};

struct ProductState {
  float sum[8][8];  // by row and sample
};

template <int ROWS, int PAIRS, int SAMPLES>
struct ProductTile {
  // Samples of a row lie side by side, four of them for each of eight pairs in different banks.
  static constexpr int PITCH = SAMPLES + 4, STRIDE = ROWS * PITCH + 4;
  static constexpr int THREADS = PAIRS * (ROWS / 8) * (SAMPLES / 8);
  static constexpr int MATRICES = 0, EVENTS = PAIRS * ROWS * ROWS * int(sizeof(float));
  static constexpr int BYTES = EVENTS + PAIRS * STRIDE * int(sizeof(float));
  static_assert(ROWS * PITCH % 32 == 0 && ROWS % 8 == 0 && SAMPLES % 8 == 0);
};

// Arguments of a call; blocks (outer, inner, rows, rows) transposed.
template <int PAIRS>
ProductCall product_call(const float* blocks, const float* x, float* y, int64_t batch, int outer, int inner, int rows) {
  ProductCall call{blocks, x, y, int64_t(outer) * inner * rows, batch, inner, outer * inner, PAIRS, {}, {}, {}};
  if (inner < PAIRS) call.used = PAIRS / inner * inner;
  call.by_inner = Divisor(inner);
  call.by_pairs = Divisor(call.used);
  call.by_eights = Divisor(int64_t(call.used) * rows / 8);
  return call;
}

// Entry number `i` of a tile, in the order of memory as far as it goes: its pair in the tile, its row and its place in
// an event, -1 beyond the last pair.
struct TileEntry {
  int pair, row;
  int64_t place;
};

template <int ROWS>
INVERTBENCH_DEVICE TileEntry tile_entry(const ProductCall& call, int tile, int i) {
  int pair, row;
  if (call.used >= call.inner) {  // whole o, of which each is a run of memory
    const int above = call.by_inner.divide(i), outer = above / ROWS;
    row = above % ROWS;
    pair = outer * call.inner + i - above * call.inner;
  } else {
    row = call.by_pairs.divide(i);
    pair = i - row * call.used;
  }
  const int number = tile * call.used + pair;
  if (number >= call.pairs) return {pair, row, -1};
  const int outer = call.by_inner.divide(number);
  return {pair, row, (int64_t(outer) * ROWS + row) * call.inner + number - outer * call.inner};
}

// Call each(entry, sample) for those of one thread: 32 threads take eight neighbouring entries of four samples.
template <int ROWS, int SAMPLES, class Block, class Each>
INVERTBENCH_DEVICE void own_entries(const Block& block, const ProductCall& call, int tile, int thread,
                                    const Each& each) {
  const int count = call.used * ROWS * SAMPLES;
  for (int i = thread; i < count; i += block.threads()) {
    const int lane = i % 32, group = i / 32, four = call.by_eights.divide(group);
    const int eight = group - four * int(call.by_eights.divisor);
    each(tile_entry<ROWS>(call, tile, eight * 8 + lane % 8), four * 4 + lane / 8);
  }
}

template <int ROWS, int PAIRS, int SAMPLES, class Block>
INVERTBENCH_DEVICE void multiply_tile(Block& block, const ProductCall& call, int tile, int chunk, int chunks) {
  using Tile = ProductTile<ROWS, PAIRS, SAMPLES>;
  const auto matrices = block.template shared<float>(Tile::MATRICES);
  const auto events = block.template shared<float>(Tile::EVENTS);
  const auto four_matrices = block.template shared<Four>(Tile::MATRICES);
  const auto four_events = block.template shared<Four>(Tile::EVENTS);
  const int64_t groups = (call.batch + SAMPLES - 1) / SAMPLES;
  for (int64_t group = chunk; group < groups; group += chunks) {
    const int64_t first = group * SAMPLES;
    block.step([&](int thread, ProductState&) {
      if (group == chunk) {
        const int64_t begin = int64_t(tile) * call.used * ROWS * ROWS;
        const int64_t left = int64_t(call.pairs) * ROWS * ROWS - begin;
        for (int i = thread; i < PAIRS * ROWS * ROWS; i += block.threads()) {
          if (i < call.used * ROWS * ROWS && i < left) block.copy(matrices, i, call.blocks + begin + i);
          else matrices[i] = 0.0F;
        }
      }
      own_entries<ROWS, SAMPLES>(block, call, tile, thread, [&](const TileEntry& at, int sample) {
        const int to = at.pair * Tile::STRIDE + at.row * Tile::PITCH + sample;
        if (at.place < 0 || first + sample >= call.batch) events[to] = 0.0F;
        else block.copy(events, to, call.x + (first + sample) * call.dim + at.place);
      });
      block.commit();
      block.template arrived<0>();
    });
    block.step([&](int thread, ProductState& state) {
      constexpr int OF_ROWS = ROWS / 8, OF_PAIR = OF_ROWS * (SAMPLES / 8);
      const int pair = thread / OF_PAIR, row = thread % OF_ROWS, sample = thread % OF_PAIR / OF_ROWS;
      INVERTBENCH_UNROLLED
      for (int r = 0; r < 8; ++r) {
        INVERTBENCH_UNROLLED
        for (int s = 0; s < 8; ++s) state.sum[r][s] = 0.0F;
      }
      if (pair >= call.used) return;
      for (int q = 0; q < ROWS; ++q) {
        Four b[2], u[2];
        INVERTBENCH_UNROLLED
        for (int half = 0; half < 2; ++half) {
          b[half] = four_matrices[(pair * ROWS + q) * (ROWS / 4) + 2 * row + half];
          u[half] = four_events[(pair * Tile::STRIDE + q * Tile::PITCH) / 4 + 2 * sample + half];
        }
        INVERTBENCH_UNROLLED
        for (int r = 0; r < 8; ++r) {
          INVERTBENCH_UNROLLED
          for (int s = 0; s < 8; ++s) state.sum[r][s] += b[r / 4].v[r % 4] * u[s / 4].v[s % 4];
        }
      }
    });
    block.step([&](int thread, ProductState& state) {
      constexpr int OF_ROWS = ROWS / 8, OF_PAIR = OF_ROWS * (SAMPLES / 8);
      const int pair = thread / OF_PAIR, row = thread % OF_ROWS, sample = thread % OF_PAIR / OF_ROWS;
      if (pair >= call.used) return;
      INVERTBENCH_UNROLLED
      for (int r = 0; r < 8; ++r) {
        INVERTBENCH_UNROLLED
        for (int half = 0; half < 2; ++half) {
          Four sums;
          INVERTBENCH_UNROLLED
          for (int s = 0; s < 4; ++s) sums.v[s] = state.sum[r][4 * half + s];
          four_events[(pair * Tile::STRIDE + (8 * row + r) * Tile::PITCH) / 4 + 2 * sample + half] = sums;
        }
      }
    });
    block.step([&](int thread, ProductState&) {
      own_entries<ROWS, SAMPLES>(block, call, tile, thread, [&](const TileEntry& at, int sample) {
        if (at.place < 0 || first + sample >= call.batch) return;
        const float value = events[at.pair * Tile::STRIDE + at.row * Tile::PITCH + sample];
        block.store(call.y + (first + sample) * call.dim + at.place, value);
      });
    });
  }
}

// The gradients of the blocks: dB[o, c, r, q] = sum over n of dy[n, o, r, c] x[n, o, q, c], over the samples of a chunk.
struct GradientCall {
  ProductCall at;     // `x` is x, and `blocks`, `y` are not used
  const float* dy;    // (batch, dim)
  float* gradients;   // (chunks, o, c, r, q)
};

struct GradientState {
  float sum[8][8];  // by row of dy and row of x
};

template <int ROWS>
struct GradientTile {
  static constexpr int PAIRS = 8, SAMPLES = 32, PITCH = SAMPLES + 4, STRIDE = ROWS * PITCH + 4;
  static constexpr int THREADS = PAIRS * (ROWS / 8) * (ROWS / 8);
  static constexpr int FIRST = 0, SECOND = PAIRS * STRIDE * int(sizeof(float)), BYTES = 2 * SECOND;
};

template <int ROWS, class Block>
INVERTBENCH_DEVICE void sum_gradients(Block& block, const GradientCall& gradient, int tile, int chunk, int chunks) {
  using Tile = GradientTile<ROWS>;
  constexpr int APART = ROWS / 8, OF_PAIR = APART * APART;  // rows of a thread lie so far apart
  const ProductCall& call = gradient.at;
  const auto first_four = block.template shared<Four>(Tile::FIRST);
  const auto second_four = block.template shared<Four>(Tile::SECOND);
  const int64_t groups = (call.batch + Tile::SAMPLES - 1) / Tile::SAMPLES;
  for (int64_t group = chunk; group < groups || group == chunk; group += chunks) {
    const int64_t begin = group * Tile::SAMPLES;
    block.step([&](int thread, GradientState&) {
      for (int which = 0; which < 2; ++which) {
        const auto events = block.template shared<float>(which == 0 ? Tile::FIRST : Tile::SECOND);
        const float* from = which == 0 ? gradient.dy : call.x;
        own_entries<ROWS, Tile::SAMPLES>(block, call, tile, thread, [&](const TileEntry& at, int sample) {
          const int to = at.pair * Tile::STRIDE + at.row * Tile::PITCH + sample;
          if (at.place < 0 || begin + sample >= call.batch) events[to] = 0.0F;
          else block.copy(events, to, from + (begin + sample) * call.dim + at.place);
        });
      }
      block.commit();
      block.template arrived<0>();
    });
    block.step([&](int thread, GradientState& state) {
      const int pair = thread / OF_PAIR, row = thread % OF_PAIR / APART, column = thread % APART;
      INVERTBENCH_UNROLLED
      for (int r = 0; r < 8; ++r) {
        INVERTBENCH_UNROLLED
        for (int q = 0; q < 8; ++q) state.sum[r][q] = group == chunk ? 0.0F : state.sum[r][q];
      }
      if (pair >= call.used) return;
      for (int four = 0; four < Tile::SAMPLES / 4; ++four) {
        Four u[8], v[8];
        INVERTBENCH_UNROLLED
        for (int r = 0; r < 8; ++r) {
          u[r] = first_four[(pair * Tile::STRIDE + (r * APART + row) * Tile::PITCH) / 4 + four];
          v[r] = second_four[(pair * Tile::STRIDE + (r * APART + column) * Tile::PITCH) / 4 + four];
        }
        INVERTBENCH_UNROLLED
        for (int r = 0; r < 8; ++r) {
          INVERTBENCH_UNROLLED
          for (int q = 0; q < 8; ++q) {
            INVERTBENCH_UNROLLED
            for (int s = 0; s < 4; ++s) state.sum[r][q] += u[r].v[s] * v[q].v[s];
          }
        }
      }
    });
  }
  block.step([&](int thread, GradientState& state) {
    const int pair = thread / OF_PAIR, row = thread % OF_PAIR / APART, column = thread % APART;
    const int number = tile * call.used + pair;
    if (pair >= call.used || number >= call.pairs) return;
    float* to = gradient.gradients + (int64_t(chunk) * call.pairs + number) * ROWS * ROWS;
    INVERTBENCH_UNROLLED
    for (int r = 0; r < 8; ++r) {
      INVERTBENCH_UNROLLED
      for (int q = 0; q < 8; ++q) block.store(to + (r * APART + row) * ROWS + q * APART + column, state.sum[r][q]);
    }
  });
}

template <int NUMBER>
struct Whole {
  static constexpr int value = NUMBER;
};

template <int ROWS_, int PAIRS_, int SAMPLES_>
struct ProductShape {
  static constexpr int ROWS = ROWS_, PAIRS = PAIRS_, SAMPLES = SAMPLES_;
};

// Call run(shape, call) for tiles of 8 x 64 (shape 0) or 16 x 32 (1) pairs and samples; false for other sizes of blocks.
template <class Run>
bool by_shape(const float* blocks, const float* x, float* y, int64_t batch, int outer, int inner, int rows, int shape,
              const Run& run) {
  const auto chosen = [&](auto tile_rows) {
    constexpr int ROWS = decltype(tile_rows)::value;
    if (shape == 0) run(ProductShape<ROWS, 8, 64>{}, product_call<8>(blocks, x, y, batch, outer, inner, rows));
    else run(ProductShape<ROWS, 16, 32>{}, product_call<16>(blocks, x, y, batch, outer, inner, rows));
    return true;
  };
  if (rows == 32) return chosen(Whole<32>{});
  if (rows == 16) return chosen(Whole<16>{});
  if (rows == 8) return chosen(Whole<8>{});
  return false;
}

// Call run(rows, call) for the gradients; false for other sizes of blocks.
template <class Run>
bool by_rows(const float* x, const float* dy, float* gradients, int64_t batch, int outer, int inner, int rows,
             const Run& run) {
  const GradientCall call{product_call<8>(nullptr, x, nullptr, batch, outer, inner, rows), dy, gradients};
  if (rows == 32) run(Whole<32>{}, call);
  else if (rows == 16) run(Whole<16>{}, call);
  else if (rows == 8) run(Whole<8>{}, call);
  else return false;
  return true;
}

}  // namespace invertbench
