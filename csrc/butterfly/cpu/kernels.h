// The kernels of butterfly/cpu/kernels.cpp and their arguments: no tensors, no threads, chosen for this processor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "butterfly/cpu/example_lanes/schedule.h"
#include "butterfly/cpu/entry_lanes/stages.h"

namespace invertbench {

// Entries that are consecutive in an event and `stride` apart in the order of the butterfly.
struct Run {
  int64_t from, length, row, stride;
};

template <class T>
struct Job {
  const Schedule& schedule;
  const std::vector<Run>& runs;  // of a whole event; unused in panels
  const T* packed;
  int64_t batch;
  const T* x;         // (batch, D)
  T* y;               // (batch, D); the gradient of x in the backward pass
  const T* dy = nullptr;     // (batch, D), the gradient of the output of `apply`
  const T* zeros = nullptr;  // D of them
};

template <class T>
struct ButterflyKernels {
  int lanes;  // numbers in a vector
  double (*log_abs_dets)(const T* weight, int64_t pitch, int64_t count);
  void (*log_abs_det_gradient)(const Butterfly&, const T* weight, T scale, T* gradient);
  void (*invert)(const T* weight, int64_t pitch, int64_t begin, int64_t end, T* inverse);  // matrices begin to end - 1
  void (*invert_gradient)(const T* inverse, int64_t count, T* gradient);
  void (*pack)(const Problem&, const Pass&, const Butterfly&, const T* weight, T* packed);
  void (*add_unpacked)(const Problem&, const Pass&, const Butterfly&, const double* packed, T* weight);
  // The weight of a tile in packed order, and back: the sums over the shares of a gradient, `size` numbers each, are
  // added to it, for a tile or for a level of shared matrices.
  void (*pack_tile)(const Stage&, int64_t tile, const T* weight, int64_t pitch, T* packed);
  void (*unpack_tile)(const Stage&, int64_t tile, const T* sums, int64_t shares, int64_t size, int64_t pitch,
                      T* gradient);
  void (*unpack_shared)(const Stage&, int level, const T* sums, int64_t shares, int64_t size, int64_t pitch,
                        T* gradient);
  // Samples x, one after the other, to y; and back, with the gradients of the matrices in packed order.
  void (*apply_staged)(const StagedButterfly&, const T* packed, int64_t samples, const T* x, T* y, T* scratch);
  void (*staged_back)(const StagedButterfly&, const T* packed, int64_t samples, const T* x, const T* dy, T* dx,
                      T* sums, T* between, T* scratch);
  // Items begin, ..., end - 1 of tiles that have `vectors` vectors, 1 or 2, of samples: a tile, or a panel of a tile.
  // `scratch` has `scratch_size` numbers, aligned to 64 bytes.
  void (*apply)(const Job<T>&, int vectors, int64_t begin, int64_t end, T* scratch);
  // The same, back; the gradients of the matrices are added to `sums` in packed order.
  void (*backward)(const Job<T>&, int vectors, int64_t begin, int64_t end, T* scratch, double* sums);
  // One sample after the other, with the unpacked weight: less work for a few samples. `row` has room for D numbers.
  void (*apply_few)(const Butterfly&, bool inverse, const std::vector<Run>&, const T* weight, int64_t batch, const T* x,
                    T* y, T* row);
  // The same, back, if no matrices are shared; their gradients are added to `gradient`, (2, 2, P).
  void (*backward_few)(const Butterfly&, const std::vector<Run>&, const T* weight, int64_t batch, const T* x,
                       const T* dy, T* dx, T* gradient, T* scratch);
};

template <class T>
const ButterflyKernels<T>& butterfly_kernels();

inline std::vector<Run> runs_of(const Layout& layout, int64_t dim) {
  if (layout.own()) return {{0, dim, 0, 1}};
  std::vector<Run> runs;
  for (int64_t j = 0; j < layout.colours; ++j) {
    for (int64_t s = 0; s < layout.groups; ++s) {
      runs.push_back({(j * layout.groups + s) * layout.positions, layout.positions, s * layout.colours + j,
                      layout.groups * layout.colours});
    }
  }
  return runs;
}

// Numbers in the scratch memory of `backward_few`.
inline int64_t few_scratch(const Butterfly& butterfly) {
  size_t factors = 1;
  for (const Part& part : butterfly.parts) factors = std::max(factors, part.factors.size());
  return butterfly.dim * int64_t(factors + 1);
}

inline int64_t items_of(const Schedule& schedule, int64_t batch, int64_t samples) {
  return (batch + samples - 1) / samples * (schedule.whole ? 1 : int64_t(schedule.problems.size()));
}

inline int64_t scratch_size(const Schedule& schedule, int64_t samples, bool backward) {
  if (!backward) return schedule.tile_rows * samples;
  // The input of every segment, intermediate results of its passes, the gradient, and a row for missing samples.
  const int64_t rows = schedule.tile_rows * (schedule.segments + 1) + schedule.block_rows;
  return rows * samples + (schedule.butterfly.dim + 63) / 64 * 64;
}

}  // namespace invertbench
