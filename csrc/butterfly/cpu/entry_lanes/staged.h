// The butterfly on tensors, with entries as lanes (see butterfly/cpu/entry_lanes/stages.h): the path of most events.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include "butterfly/cpu/kernels.h"
#include "butterfly/cpu/work.h"

namespace invertbench {

constexpr int64_t CHUNK_BYTES = 400 << 10;       // of the samples of a chunk: of a second cache of 1024
constexpr int64_t CHUNK_BYTES_BACK = 200 << 10;  // their inputs to two stages and their gradients
constexpr int64_t LEAST_CHUNK = 16;              // samples that share each read of the weight
constexpr int64_t MOST_CHUNK = 64;
constexpr int64_t MOST_SUMMED = 128;             // samples over which gradients are summed in single precision

// A batch in its memory order, and the weight in the order of its use.
template <class T>
class Staged {
 public:
  Staged(const StagedButterfly& staged, int64_t batch, const at::Tensor& like, const T* weight)
      : staged(staged), nanoseconds(nanoseconds_of(staged.butterfly, batch)) {
    memory = aligned<T>(staged.packed, like, packed);
    for (const Stage& stage : staged.stages) {
      const int64_t tiles = int64_t(stage.tiles.size());
      at::parallel_for(0, tiles, grain(tiles, double(staged.packed)), [&](int64_t begin, int64_t end) {
        for (int64_t tile = begin; tile < end; ++tile) {
          kernels.pack_tile(stage, tile, weight, staged.butterfly.matrices, packed);
        }
      });
    }
  }

  void apply(const at::Tensor& x, at::Tensor& y) const {
    const int64_t batch = x.size(0), dim = staged.butterfly.dim, least = grain(batch, nanoseconds);
    const int64_t size = SAMPLES * staged.vectors * kernels.lanes;
    T* scratch;
    const at::Tensor memory = aligned<T>(size * at::get_num_threads(), x, scratch);
    const T* from = x.const_data_ptr<T>();
    T* to = y.mutable_data_ptr<T>();
    at::parallel_for(0, batch, least, [&](int64_t begin, int64_t end) {
      kernels.apply_staged(staged, packed, end - begin, chunk(CHUNK_BYTES), from + begin * dim, to + begin * dim,
                           scratch + at::get_thread_num() * size);
    });
  }

  // The gradients of the matrices are added to `gradient`, (2, 2, P). The shares of the batch depend on it and on
  // the number of threads alone, added in order: equal numbers of threads give equal bits.
  void backward(const at::Tensor& x, const at::Tensor& dy, at::Tensor& dx, T* gradient) const {
    const int64_t batch = x.size(0), dim = staged.butterfly.dim, threads = at::get_num_threads();
    const int64_t least = grain(batch, 3 * nanoseconds), chunk = std::min(batch, this->chunk(CHUNK_BYTES_BACK));
    int64_t shares = std::min(threads, (batch + least - 1) / least);
    if (shares == threads) shares *= (batch + MOST_SUMMED * threads - 1) / (MOST_SUMMED * threads);
    size_t stages = 1, within = 0;
    for (const Stage& stage : staged.stages) {
      within = stage.first ? 0 : within + 1;
      stages = std::max(stages, within);
    }
    const int64_t tile = staged.vectors * kernels.lanes, alone = ALIGNMENT / int64_t(sizeof(T));
    const int64_t scratch = MOST_LEVELS * SAMPLES * tile;
    const int64_t size = (scratch + int64_t(stages) * chunk * dim + alone - 1) / alone * alone;
    T *own, *sums;
    const at::Tensor memory = aligned<T>(size * threads, x, own);
    const at::Tensor summed = aligned<T>(staged.packed * shares, x, sums);
    const T *from = x.const_data_ptr<T>(), *back = dy.const_data_ptr<T>();
    T* to = dx.mutable_data_ptr<T>();
    at::parallel_for(0, shares, 1, [&](int64_t first, int64_t last) {
      T* mine = own + at::get_thread_num() * size;
      for (int64_t i = first; i < last; ++i) {
        const int64_t begin = batch * i / shares, count = batch * (i + 1) / shares - begin, at = begin * dim;
        kernels.staged_back(staged, packed, count, chunk, from + at, back + at, to + at, sums + i * staged.packed,
                            mine + scratch, mine);
      }
    });
    unpack(sums, shares, gradient);
  }

 private:
  int64_t chunk(int64_t bytes) const {
    return std::clamp(bytes / (staged.butterfly.dim * int64_t(sizeof(T))), LEAST_CHUNK, MOST_CHUNK);
  }

  void unpack(const T* sums, int64_t shares, T* gradient) const {
    const Butterfly& butterfly = staged.butterfly;
    for (const Stage& stage : staged.stages) {
      const int64_t count = int64_t(butterfly.shared ? stage.levels.size() : stage.tiles.size());
      const double work = double(staged.packed * shares);
      at::parallel_for(0, count, grain(count, work), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          if (butterfly.shared) {
            kernels.unpack_shared(stage, int(i), sums, shares, staged.packed, butterfly.matrices, gradient);
          } else {
            kernels.unpack_tile(stage, i, sums, shares, staged.packed, butterfly.matrices, gradient);
          }
        }
      });
    }
  }

  const ButterflyKernels<T>& kernels = butterfly_kernels<T>();
  const StagedButterfly& staged;
  double nanoseconds;  // for the whole batch
  at::Tensor memory;
  T* packed;
};

}  // namespace invertbench
