// The butterfly's operators on the processor.

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <map>
#include <memory>
#include <mutex>

#include "butterfly/arguments.h"
#include "butterfly/cpu/entry_lanes/staged.h"
#include "butterfly/cpu/example_lanes/tiled.h"
#include "operands.h"

namespace invertbench::butterfly {
namespace {

using at::IntArrayRef;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Two = std::tuple<Tensor, Tensor>;

constexpr int64_t FEW = 3;  // samples up to which processing one by one, with the unpacked weight, is cheaper
constexpr size_t MOST_PLANS = 64;

double log_abs_det(const Butterfly& butterfly, const auto& kernels, const auto* weight) {
  struct Task {
    int64_t weight, count, uses;
    double sum;
  };
  std::vector<Task> tasks;
  for (const Part& part : butterfly.parts) {
    for (const Factor& factor : part.factors) {
      const int64_t uses = butterfly.shared ? factor.half : 1;
      tasks.push_back({factor.weight, part.size / 2 / uses, uses, 0});
    }
  }
  const int64_t least = least_tasks(tasks.size(), double(butterfly.matrices));
  at::parallel_for(0, tasks.size(), least, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      tasks[i].sum = kernels.log_abs_dets(weight + tasks[i].weight, butterfly.matrices, tasks[i].count);
    }
  });
  double total = 0;
  for (const Task& task : tasks) total += task.sum * double(task.uses);
  return total;
}

template <class T>
Tensor inverse_weight(const Tensor& weight, int64_t matrices) {
  Tensor inverse = at::empty_like(weight);
  butterfly_kernels<T>().invert(weight.const_data_ptr<T>(), matrices, 0, matrices, inverse.mutable_data_ptr<T>());
  return inverse;
}

// The stages of a butterfly, or nothing, by its plan: a layer needs the same ones in every call.
std::shared_ptr<const StagedButterfly> find_stages(const Butterfly& butterfly, const Layout& layout, int64_t lanes) {
  static std::mutex mutex;
  static std::map<std::vector<int64_t>, std::shared_ptr<const StagedButterfly>> known;
  std::vector<int64_t> key{butterfly.shared, layout.colours, layout.groups, layout.positions, lanes};
  for (const Part& part : butterfly.parts) {
    key.push_back(part.size);
    for (const Factor& factor : part.factors) key.insert(key.end(), {-factor.half, factor.weight});
  }
  const std::lock_guard<std::mutex> lock(mutex);
  const auto at = known.find(key);
  if (at != known.end()) return at->second;
  if (known.size() == MOST_PLANS) known.clear();
  auto staged = stage_butterfly(butterfly, layout, lanes);
  auto& kept = known[std::move(key)];
  if (staged) kept = std::make_shared<const StagedButterfly>(std::move(*staged));
  return kept;
}

// Call body(ready): a batch cut into tiles for the kernels, and the weight, or its inverse, in the order of its use.
template <class T, class Body>
void prepared(const Butterfly& butterfly, const Layout& layout, bool inverted, int64_t batch, const Tensor& weight,
              const Body& body) {
  const auto staged = find_stages(butterfly, layout, butterfly_kernels<T>().lanes);
  if (staged) return body(Staged<T>(*staged, inverted, batch, weight));
  const Tensor used = inverted ? inverse_weight<T>(weight, butterfly.matrices) : weight;
  body(Tiled<T>(butterfly, layout, batch, used.const_data_ptr<T>()));
}

template <class T>
Two forward_of(const Tensor& x, const Tensor& weight, Butterfly butterfly, const Layout& layout) {
  const auto& kernels = butterfly_kernels<T>();
  const T* w = weight.const_data_ptr<T>();
  Tensor y = at::empty_like(x), log_det = at::empty({}, x.options());
  *log_det.mutable_data_ptr<T>() = T(log_abs_det(butterfly, kernels, w));
  const int64_t batch = x.size(0);
  if (batch == 0) return {y, log_det};
  if (batch <= FEW) {
    const Tensor row = at::empty({butterfly.dim}, x.options());
    kernels.apply_few(butterfly, false, runs_of(layout, butterfly.dim), w, batch, x.const_data_ptr<T>(),
                      y.mutable_data_ptr<T>(), row.mutable_data_ptr<T>());
  } else {
    prepared<T>(butterfly, layout, false, batch, weight, [&](const auto& ready) { ready.apply(x, y); });
  }
  return {y, log_det};
}

template <class T>
Tensor inverse_of(const Tensor& y, const Tensor& weight, Butterfly butterfly, const Layout& layout) {
  const auto& kernels = butterfly_kernels<T>();
  const T* w = weight.const_data_ptr<T>();
  Tensor x = at::empty_like(y);
  const int64_t batch = y.size(0);
  reverse(butterfly);
  if (batch == 0) return x;
  if (batch <= FEW) {
    const Tensor row = at::empty({butterfly.dim}, x.options());
    kernels.apply_few(butterfly, true, runs_of(layout, butterfly.dim), w, batch, y.const_data_ptr<T>(),
                      x.mutable_data_ptr<T>(), row.mutable_data_ptr<T>());
  } else {
    prepared<T>(butterfly, layout, true, batch, weight, [&](const auto& ready) { ready.apply(y, x); });
  }
  return x;
}

// Add the gradient of the matrices to `gradient`, (2, 2, P), and write that of the samples to `dx`.
template <class T>
void backward_through(const Butterfly& butterfly, const Layout& layout, const Tensor& x, const Tensor& weight,
                      const Tensor& dy, Tensor& dx, T* gradient) {
  if (x.size(0) > FEW || (butterfly.shared && x.size(0))) {
    prepared<T>(butterfly, layout, false, x.size(0), weight,
                [&](const auto& ready) { ready.backward(x, dy, dx, gradient); });
  } else if (x.size(0)) {
    const Tensor scratch = at::empty({few_scratch(butterfly)}, x.options());
    butterfly_kernels<T>().backward_few(butterfly, runs_of(layout, butterfly.dim), weight.const_data_ptr<T>(),
                                        x.size(0), x.const_data_ptr<T>(), dy.const_data_ptr<T>(),
                                        dx.mutable_data_ptr<T>(), gradient, scratch.mutable_data_ptr<T>());
  }
}

template <class T>
Two backward_of(const OptionalTensor& dy, const OptionalTensor& dlog_det, const Tensor& x, const Tensor& weight,
                Butterfly butterfly, const Layout& layout) {
  Tensor dx = dy ? at::empty_like(x) : at::zeros_like(x);
  Tensor gradient = dlog_det ? at::empty_like(weight) : at::zeros_like(weight);
  T* g = gradient.mutable_data_ptr<T>();
  if (dlog_det) {
    const T scale = *dlog_det->const_data_ptr<T>();
    butterfly_kernels<T>().log_abs_det_gradient(butterfly, weight.const_data_ptr<T>(), scale, g);
  }
  if (dy) backward_through<T>(butterfly, layout, x, weight, dy->contiguous(), dx, g);
  return {dx, gradient};
}

template <class T>
Two inverse_backward_of(const Tensor& dx, const Tensor& y, const Tensor& weight, Butterfly butterfly,
                        const Layout& layout) {
  Tensor dy = at::empty_like(y), gradient = at::zeros_like(weight);
  const Tensor inverse = inverse_weight<T>(weight, butterfly.matrices);
  reverse(butterfly);
  T* g = gradient.mutable_data_ptr<T>();
  backward_through<T>(butterfly, layout, y, inverse, dx, dy, g);
  butterfly_kernels<T>().invert_gradient(inverse.const_data_ptr<T>(), butterfly.matrices, g);
  return {dy, gradient};
}

Two forward_cpu(const Tensor& x, const Tensor& weight, IntArrayRef plan, IntArrayRef layout, bool shared) {
  Butterfly butterfly = butterfly_of(x, weight, plan, layout, shared);
  const auto run = x.scalar_type() == at::kFloat ? forward_of<float> : forward_of<double>;
  return run(x.contiguous(), weight.contiguous(), std::move(butterfly), layout_of(layout));
}

Tensor inverse_cpu(const Tensor& y, const Tensor& weight, IntArrayRef plan, IntArrayRef layout, bool shared) {
  Butterfly butterfly = butterfly_of(y, weight, plan, layout, shared);
  const auto run = y.scalar_type() == at::kFloat ? inverse_of<float> : inverse_of<double>;
  return run(y.contiguous(), weight.contiguous(), std::move(butterfly), layout_of(layout));
}

Two backward_cpu(const OptionalTensor& dy, const OptionalTensor& dlog_det, const Tensor& x, const Tensor& weight,
                 IntArrayRef plan, IntArrayRef layout, bool shared) {
  Butterfly butterfly = butterfly_of(x, weight, plan, layout, shared);
  const auto run = x.scalar_type() == at::kFloat ? backward_of<float> : backward_of<double>;
  return run(dy, dlog_det, x.contiguous(), weight.contiguous(), std::move(butterfly), layout_of(layout));
}

Two inverse_backward_cpu(const Tensor& dx, const Tensor& y, const Tensor& weight, IntArrayRef plan, IntArrayRef layout,
                         bool shared) {
  Butterfly butterfly = butterfly_of(y, weight, plan, layout, shared);
  const auto run = y.scalar_type() == at::kFloat ? inverse_backward_of<float> : inverse_backward_of<double>;
  return run(dx.contiguous(), y.contiguous(), weight.contiguous(), std::move(butterfly), layout_of(layout));
}

}  // namespace

TORCH_LIBRARY_IMPL(invertbench, CPU, m) {
  m.impl("butterfly", forward_cpu);
  m.impl("butterfly_inverse", inverse_cpu);
  m.impl("butterfly_backward", backward_cpu);
  m.impl("butterfly_inverse_backward", inverse_backward_cpu);
}

}  // namespace invertbench::butterfly
