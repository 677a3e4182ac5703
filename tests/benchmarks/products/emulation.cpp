// The launch of products.cu, run on the processor; called by test_multiplied_out.py. nullptr, or what was wrong.

#include <string>

#include "host_block.h"
#include "products.h"

namespace invertbench::emulation {

template <class Shape>
void run(Shape, const ProductCall& call, int chunks) {
  using Tile = ProductTile<Shape::ROWS, Shape::PAIRS, Shape::SAMPLES>;
  Ledger ledger;
  ledger.allow(call.y, call.dim * call.batch);
  const int tiles = (call.pairs + call.used - 1) / call.used;
  for (int chunk = chunks; chunk-- > 0;) {
    for (int tile = 0; tile < tiles; ++tile) {
      HostBlock<ProductState> block(Tile::THREADS, Tile::BYTES, ledger);
      multiply_tile<Shape::ROWS, Shape::PAIRS, Shape::SAMPLES>(block, call, tile, chunk, chunks);
    }
  }
  for (int stores : ledger.memories[0].stores) {
    if (stores != 1) fail("an entry is not stored once");
  }
}

}  // namespace invertbench::emulation

extern "C" const char* emulate_products(const float* blocks, const float* x, float* y, long long batch, int outer,
                                        int inner, int rows, int shape, int chunks) {
  static std::string message;
  try {
    const bool there = invertbench::by_shape(blocks, x, y, batch, outer, inner, rows, shape,
                                             [&](auto tile, const invertbench::ProductCall& call) {
                                               invertbench::emulation::run(tile, call, chunks);
                                             });
    return there ? nullptr : "blocks are of 8, 16 or 32 rows";
  } catch (const std::exception& error) {
    message = error.what();
    return message.c_str();
  }
}
