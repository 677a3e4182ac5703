// The butterfly on tensors, with samples as lanes: any D, any layout.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include "butterfly/cpu/kernels.h"
#include "butterfly/cpu/work.h"
#include "thread_memory.h"

namespace invertbench {

// Call body(problem, pass) for every pass, in parallel.
template <class Body>
void for_each_pass(const Schedule& schedule, const Body& body) {
  std::vector<std::pair<const Problem*, const Pass*>> all;
  for (const Problem& problem : schedule.problems) {
    for (const Pass& pass : problem.passes) all.emplace_back(&problem, &pass);
  }
  at::parallel_for(0, all.size(), least_tasks(all.size(), double(schedule.packed)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(*all[i].first, *all[i].second);
  });
}

// A batch as tiles with its samples as lanes (see butterfly/cpu/example_lanes/schedule.h), and the weight in the order
// of its use.
template <class T>
class Tiled {
 public:
  Tiled(Butterfly butterfly, const Layout& layout, int64_t batch, const T* weight) {
    // Two vectors share each read of the weight, if enough tiles remain for every thread.
    vectors = batch >= 2 * kernels.lanes * at::get_num_threads() ? 2 : 1;
    samples = vectors * kernels.lanes;
    schedule = make_schedule(std::move(butterfly), samples * sizeof(T), layout.own());
    runs = runs_of(layout, schedule.butterfly.dim);
    items = items_of(schedule, batch, samples);
    nanoseconds = nanoseconds_of(schedule.butterfly, batch);
    packed = memory.numbers(schedule.packed);
    for_each_pass(schedule, [&](const Problem& problem, const Pass& pass) {
      kernels.pack(problem, pass, schedule.butterfly, weight, packed);
    });
  }

  void apply(const at::Tensor& x, at::Tensor& y) const {
    const int64_t size = scratch_size(schedule, samples, false), least = least_tasks(items, nanoseconds);
    const int64_t threads = std::min<int64_t>(at::get_num_threads(), (items + least - 1) / least);
    const ThreadMemory<T> scratch(size, threads);
    const Job<T> job{schedule, runs, packed, x.size(0), x.const_data_ptr<T>(), y.mutable_data_ptr<T>()};
    at::parallel_for(0, items, least, [&](int64_t begin, int64_t end) {
      kernels.apply(job, vectors, begin, end, scratch.own());
    });
  }

  // The gradients of the matrices are added to `gradient`, (2, 2, P). Each thread has a share of the batch that depends
  // on the number of threads alone, added in order: equal numbers of threads give equal bits.
  void backward(const at::Tensor& x, const at::Tensor& dy, at::Tensor& dx, T* gradient) const {
    const int64_t least = least_tasks(items, 3 * nanoseconds), size = scratch_size(schedule, samples, true);
    const int64_t shares = std::min<int64_t>(at::get_num_threads(), (items + least - 1) / least);
    const ThreadMemory<T> scratch(size, shares);
    const at::Tensor sums = at::zeros({shares, schedule.packed}, x.options().dtype(at::kDouble));
    const at::Tensor zeros = at::zeros({schedule.butterfly.dim}, x.options());
    const Job<T> job{schedule, runs, packed, x.size(0), x.const_data_ptr<T>(), dx.mutable_data_ptr<T>(),
                     dy.const_data_ptr<T>(), zeros.const_data_ptr<T>()};
    double* sum = sums.mutable_data_ptr<double>();
    at::parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        kernels.backward(job, vectors, items * i / shares, items * (i + 1) / shares, scratch.own(),
                         sum + i * schedule.packed);
      }
    });
    for (int64_t i = 1; i < shares; ++i) {
      for (int64_t j = 0; j < schedule.packed; ++j) sum[j] += sum[i * schedule.packed + j];
    }
    for (const Problem& problem : schedule.problems) {
      for (const Pass& pass : problem.passes) kernels.add_unpacked(problem, pass, schedule.butterfly, sum, gradient);
    }
  }

 private:
  const ButterflyKernels<T>& kernels = butterfly_kernels<T>();
  int vectors;
  int64_t samples, items;
  double nanoseconds;  // for the whole batch
  Schedule schedule;
  std::vector<Run> runs;
  Scratch<T> memory;
  T* packed;
};

}  // namespace invertbench
