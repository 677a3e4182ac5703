// The launches of products.cu, run on the processor; called by test_multiplied_out.py. nullptr, or what was wrong.

#include <string>

#include "host_block.h"
#include "products.h"

namespace invertbench::emulation {

// Run one(tile, chunk, ledger) for every block of a launch; each number of `memory` must be stored once.
template <class One>
void run_blocks(const ProductCall& call, int chunks, const float* memory, int64_t count, const One& one) {
  Ledger ledger;
  ledger.allow(memory, count);
  for (int chunk = chunks; chunk-- > 0;) {
    for (int tile = 0; tile * call.used < call.pairs; ++tile) one(tile, chunk, ledger);
  }
  for (int stores : ledger.memories[0].stores) {
    if (stores != 1) fail("a number is not stored once");
  }
}

template <class Run>
const char* guarded(const Run& run) {
  static std::string message;
  try {
    return run() ? nullptr : "blocks are of 8, 16 or 32 rows";
  } catch (const std::exception& error) {
    message = error.what();
    return message.c_str();
  }
}

}  // namespace invertbench::emulation

using namespace invertbench;

extern "C" const char* emulate_products(const float* blocks, const float* x, float* y, long long batch, int outer,
                                        int inner, int rows, int shape, int chunks) {
  return emulation::guarded([&] {
    return by_shape(blocks, x, y, batch, outer, inner, rows, shape, [&](auto tiles, const ProductCall& call) {
      using Shape = decltype(tiles);
      using Tile = ProductTile<Shape::ROWS, Shape::PAIRS, Shape::SAMPLES>;
      emulation::run_blocks(call, chunks, call.y, call.dim * call.batch, [&](int tile, int chunk, auto& ledger) {
        emulation::HostBlock<ProductState> block(Tile::THREADS, Tile::BYTES, ledger);
        multiply_tile<Shape::ROWS, Shape::PAIRS, Shape::SAMPLES>(block, call, tile, chunk, chunks);
      });
    });
  });
}

extern "C" const char* emulate_gradients(const float* x, const float* dy, float* gradients, long long batch, int outer,
                                         int inner, int rows, int chunks) {
  return emulation::guarded([&] {
    return by_rows(x, dy, gradients, batch, outer, inner, rows, [&](auto size, const GradientCall& call) {
      constexpr int ROWS = decltype(size)::value;
      using Tile = GradientTile<ROWS>;
      const int64_t count = int64_t(chunks) * call.at.pairs * ROWS * ROWS;
      emulation::run_blocks(call.at, chunks, gradients, count, [&](int tile, int chunk, auto& ledger) {
        emulation::HostBlock<GradientState> block(Tile::THREADS, Tile::BYTES, ledger);
        sum_gradients<ROWS>(block, call, tile, chunk, chunks);
      });
    });
  });
}
