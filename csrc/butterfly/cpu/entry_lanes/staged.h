// The butterfly on tensors, with entries as lanes (see butterfly/cpu/entry_lanes/stages.h): the path of most events.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include "butterfly/cpu/kernels.h"
#include "butterfly/cpu/work.h"
#include "thread_memory.h"

namespace invertbench {

constexpr int64_t MOST_SUMMED = 128;  // samples over which gradients are summed in single precision
constexpr int64_t MOST_BYTES_PER_THREAD = 1 << 20;  // of a packed weight, up to which every thread packs its own

// A batch in its memory order, and the weight, or its inverse, in the order of its use. Packing takes less time than
// reading what another thread has just packed, as long as the result stays in the second cache.
template <class T>
class Staged {
 public:
  Staged(const StagedButterfly& staged, bool inverted, int64_t batch, const at::Tensor& weight)
      : staged(staged),
        inverted(inverted),
        per_thread(staged.packed * int64_t(sizeof(T)) <= MOST_BYTES_PER_THREAD),
        weight(weight.const_data_ptr<T>()),
        nanoseconds(nanoseconds_of(staged.butterfly, batch)),
        memory(staged.packed + (inverted ? 4 * staged.butterfly.matrices : 0), per_thread ? at::get_num_threads() : 1) {
    if (per_thread) return;
    pack(memory.own(), [&](int64_t count, const auto& body) {
      at::parallel_for(0, count, least_tasks(count, double(staged.packed)), body);
    });
  }

  void apply(const at::Tensor& x, at::Tensor& y) const {
    const int64_t batch = x.size(0), dim = staged.butterfly.dim, least = least_tasks(batch, nanoseconds);
    const ThreadMemory<T> scratch(SAMPLES * staged.vectors * kernels.lanes, at::get_num_threads());
    const T* from = x.const_data_ptr<T>();
    T* to = y.mutable_data_ptr<T>();
    at::parallel_for(0, batch, least, [&](int64_t begin, int64_t end) {
      kernels.apply_staged(staged, packed_weight(), end - begin, from + begin * dim, to + begin * dim, scratch.own());
    });
  }

  // The gradients of the matrices are added to `gradient`, (2, 2, P). The shares of the batch depend on it and on
  // the number of threads alone, added in order: equal numbers of threads give equal bits.
  void backward(const at::Tensor& x, const at::Tensor& dy, at::Tensor& dx, T* gradient) const {
    const int64_t batch = x.size(0), dim = staged.butterfly.dim, threads = at::get_num_threads();
    const int64_t least = least_tasks(batch, 3 * nanoseconds);
    int64_t shares = std::min(threads, (batch + least - 1) / least);
    if (shares == threads) shares *= (batch + MOST_SUMMED * threads - 1) / (MOST_SUMMED * threads);
    size_t stages = 1, within = 0;
    for (const Stage& stage : staged.stages) {
      within = stage.first ? 0 : within + 1;
      stages = std::max(stages, within);
    }
    // What has a stride of whole events comes first: beyond its end more is prefetched than lies between threads.
    const int64_t between = int64_t(stages) * SAMPLES_BACK * dim;
    const ThreadMemory<T> memory(between + MOST_LEVELS * SAMPLES_BACK * staged.vectors * kernels.lanes, threads);
    Scratch<T> summed;
    T* const sums = summed.numbers(staged.packed * shares);
    const T *from = x.const_data_ptr<T>(), *back = dy.const_data_ptr<T>();
    T* to = dx.mutable_data_ptr<T>();
    at::parallel_for(0, shares, 1, [&](int64_t first, int64_t last) {
      const T* const packed = packed_weight();
      T* const own = memory.own();
      for (int64_t i = first; i < last; ++i) {
        const int64_t begin = batch * i / shares, count = batch * (i + 1) / shares - begin, at = begin * dim;
        kernels.staged_back(staged, packed, count, from + at, back + at, to + at, sums + i * staged.packed, own,
                            own + between);
      }
    });
    unpack(sums, shares, gradient);
  }

 private:
  // Write the weight to `to` in packed order, by loop(count, body): body(begin, end) for parts of `count`.
  template <class Loop>
  void pack(T* to, const Loop& loop) const {
    const int64_t matrices = staged.butterfly.matrices;
    T* const inverse = to + staged.packed;
    if (inverted) {
      loop(matrices, [&](int64_t begin, int64_t end) { kernels.invert(weight, matrices, begin, end, inverse); });
    }
    for (const Stage& stage : staged.stages) {
      loop(int64_t(stage.tiles.size()), [&](int64_t begin, int64_t end) {
        for (int64_t tile = begin; tile < end; ++tile) {
          kernels.pack_tile(stage, tile, inverted ? inverse : weight, matrices, to);
        }
      });
    }
  }

  // Return the packed weight, for the calling thread.
  const T* packed_weight() const {
    T* const packed = memory.own();
    if (per_thread) pack(packed, [](int64_t count, const auto& body) { body(0, count); });
    return packed;
  }

  void unpack(const T* sums, int64_t shares, T* gradient) const {
    const Butterfly& butterfly = staged.butterfly;
    for (const Stage& stage : staged.stages) {
      const int64_t count = int64_t(butterfly.shared ? stage.levels.size() : stage.tiles.size());
      const double work = double(staged.packed * shares);
      at::parallel_for(0, count, least_tasks(count, work), [&](int64_t begin, int64_t end) {
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
  const bool inverted;
  const bool per_thread;  // packed weight
  const T* const weight;
  const double nanoseconds;      // for the whole batch
  const ThreadMemory<T> memory;  // of the packed weight, and of the inverse from which it is packed
};

}  // namespace invertbench
