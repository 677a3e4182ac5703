// torch.ops.invertbench.butterfly and its kin: schemas, gradients, shapes without data, and the work on the processor.
//
// plan: for each part its size, the number of its levels, the levels, first applied first. layout: empty for an event
// in its own order, else [J, S, n] (see Layout). shared: one matrix for all pairs of a block.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "butterfly_cpu.h"

namespace invertbench {
namespace {

using at::IntArrayRef;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Two = std::tuple<Tensor, Tensor>;

constexpr int64_t FEW = 3;             // samples that are cheaper one by one than in a tile
constexpr double NANOSECONDS = 0.06;   // for one entry of one sample and one factor, roughly
constexpr double WORTH_A_THREAD = 2e4; // nanoseconds
constexpr int64_t ALIGNMENT = 64;

Butterfly butterfly_of(const Tensor& x, const Tensor& weight, IntArrayRef plan, IntArrayRef layout, bool shared) {
  TORCH_CHECK(x.dim() >= 1 && x.scalar_type() == weight.scalar_type() &&
                  (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble),
              "butterfly: a batch of ", x.scalar_type(), " with a weight of ", weight.scalar_type(),
              "; both must be float32, or both float64");
  Butterfly found = parse_butterfly(plan.data(), plan.size(), shared);
  TORCH_CHECK(c10::multiply_integers(x.sizes().slice(1)) == found.dim, "butterfly: events of shape ",
              x.sizes().slice(1), " for a plan of ", found.dim, " entries");
  TORCH_CHECK(weight.sizes() == IntArrayRef({2, 2, found.matrices}), "butterfly: a weight of shape ", weight.sizes(),
              " for a plan of ", found.matrices, " matrices; expected (2, 2, ", found.matrices, ")");
  TORCH_CHECK(layout.empty() || (layout.size() == 3 && c10::multiply_integers(layout) == found.dim),
              "butterfly: layout ", layout, " is not [J, S, n] with a product of ", found.dim);
  return found;
}

Layout layout_of(IntArrayRef sizes) { return sizes.empty() ? Layout{} : Layout{sizes[0], sizes[1], sizes[2]}; }

template <class T>
Tensor aligned(int64_t size, const Tensor& like, T*& begin) {
  Tensor memory = at::empty({int64_t(size * sizeof(T) + ALIGNMENT)}, like.options().dtype(at::kByte));
  const auto address = reinterpret_cast<uintptr_t>(memory.mutable_data_ptr());
  begin = reinterpret_cast<T*>((address + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  return memory;
}

// How many of `count` equal tasks, of so many nanoseconds together, one thread should take at least.
int64_t grain(int64_t count, double nanoseconds) {
  return std::max<int64_t>(1, int64_t(WORTH_A_THREAD / std::max(nanoseconds, 1.0) * double(count)));
}

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
  at::parallel_for(0, tasks.size(), grain(tasks.size(), double(butterfly.matrices)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      tasks[i].sum = kernels.log_abs_dets(weight + tasks[i].weight, butterfly.matrices, tasks[i].count);
    }
  });
  double total = 0;
  for (const Task& task : tasks) total += task.sum * double(task.uses);
  return total;
}

// Calls body(problem, pass) for every pass, in parallel.
template <class Body>
void for_each_pass(const Schedule& schedule, const Body& body) {
  std::vector<std::pair<const Problem*, const Pass*>> all;
  for (const Problem& problem : schedule.problems) {
    for (const Pass& pass : problem.passes) all.emplace_back(&problem, &pass);
  }
  at::parallel_for(0, all.size(), grain(all.size(), double(schedule.packed)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(*all[i].first, *all[i].second);
  });
}

// What both directions of a batch need: how it is cut, and the weight in the order of its use.
template <class T>
struct Prepared {
  const ButterflyKernels<T>& kernels = butterfly_kernels<T>();
  int vectors;
  int64_t samples, items;
  double nanoseconds;  // of all
  Schedule schedule;
  std::vector<Run> runs;
  Tensor memory;
  T* packed;

  Prepared(Butterfly butterfly, const Layout& layout, int64_t batch, const Tensor& like, const T* weight) {
    // Two vectors share what is read of the weight, if there are tiles for every thread all the same.
    vectors = batch >= 2 * kernels.lanes * at::get_num_threads() ? 2 : 1;
    samples = vectors * kernels.lanes;
    schedule = make_schedule(std::move(butterfly), samples * sizeof(T), layout.own());
    runs = runs_of(layout, schedule.butterfly.dim);
    items = items_of(schedule, batch, samples);
    size_t factors = 1;
    for (const Part& part : schedule.butterfly.parts) factors = std::max(factors, part.factors.size() + 1);
    nanoseconds = double(batch * schedule.butterfly.dim * factors) * NANOSECONDS;
    memory = aligned<T>(schedule.packed, like, packed);
    for_each_pass(schedule, [&](const Problem& problem, const Pass& pass) {
      kernels.pack(problem, pass, schedule.butterfly, weight, packed);
    });
  }

  void apply(const Tensor& x, Tensor& y) const {
    const int64_t size = scratch_size(schedule, samples, false), least = grain(items, nanoseconds);
    const int64_t threads = std::min<int64_t>(at::get_num_threads(), (items + least - 1) / least);
    T* scratch;
    const Tensor memory = aligned<T>(size * threads, x, scratch);
    const Job<T> job{schedule, runs, packed, x.size(0), x.const_data_ptr<T>(), y.mutable_data_ptr<T>()};
    at::parallel_for(0, items, least, [&](int64_t begin, int64_t end) {
      kernels.apply(job, vectors, begin, end, scratch + at::get_thread_num() * size);
    });
  }

  // The gradients of the matrices are added to `gradient`, (2, 2, P). Each thread has a share of the batch that depends
  // on the number of threads alone, and the shares are added in order: the same threads give the same bits.
  void backward(const Tensor& x, const Tensor& dy, Tensor& dx, T* gradient) const {
    const int64_t least = grain(items, 3 * nanoseconds), size = scratch_size(schedule, samples, true);
    const int64_t shares = std::min<int64_t>(at::get_num_threads(), (items + least - 1) / least);
    T* scratch;
    const Tensor memory = aligned<T>(size * shares, x, scratch);
    const Tensor sums = at::zeros({shares, schedule.packed}, x.options().dtype(at::kDouble));
    const Tensor zeros = at::zeros({schedule.butterfly.dim}, x.options());
    const Job<T> job{schedule, runs, packed, x.size(0), x.const_data_ptr<T>(), dx.mutable_data_ptr<T>(),
                     dy.const_data_ptr<T>(), zeros.const_data_ptr<T>()};
    double* sum = sums.mutable_data_ptr<double>();
    at::parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        kernels.backward(job, vectors, items * i / shares, items * (i + 1) / shares, scratch + i * size,
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
};

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
    Prepared<T>(std::move(butterfly), layout, batch, x, w).apply(x, y);
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
    const Tensor inverse = at::empty_like(weight);
    kernels.invert(w, butterfly.matrices, inverse.mutable_data_ptr<T>());
    Prepared<T>(std::move(butterfly), layout, batch, x, inverse.const_data_ptr<T>()).apply(y, x);
  }
  return x;
}

template <class T>
Two backward_of(const OptionalTensor& dy, const OptionalTensor& dlog_det, const Tensor& x, const Tensor& weight,
                Butterfly butterfly, const Layout& layout) {
  Tensor dx = dy ? at::empty_like(x) : at::zeros_like(x), gradient = at::zeros_like(weight);
  const T* w = weight.const_data_ptr<T>();
  T* g = gradient.mutable_data_ptr<T>();
  if (dlog_det) {
    const T scale = *dlog_det->const_data_ptr<T>();
    butterfly_kernels<T>().add_log_abs_det_gradient(butterfly, w, scale, g);
  }
  if (dy && x.size(0)) {
    Prepared<T>(std::move(butterfly), layout, x.size(0), x, w).backward(x, dy->contiguous(), dx, g);
  }
  return {dx, gradient};
}

template <class T>
Two inverse_backward_of(const Tensor& dx, const Tensor& y, const Tensor& weight, Butterfly butterfly,
                        const Layout& layout) {
  const auto& kernels = butterfly_kernels<T>();
  const int64_t count = butterfly.matrices;
  Tensor dy = at::empty_like(y), gradient = at::zeros_like(weight);
  const Tensor inverse = at::empty_like(weight);
  reverse(butterfly);
  kernels.invert(weight.const_data_ptr<T>(), count, inverse.mutable_data_ptr<T>());
  const T* w = inverse.const_data_ptr<T>();
  T* g = gradient.mutable_data_ptr<T>();
  if (y.size(0)) Prepared<T>(std::move(butterfly), layout, y.size(0), y, w).backward(y, dx, dy, g);
  kernels.invert_gradient(w, count, g);
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

Tensor like(const Tensor& x) { return at::empty_like(x, at::MemoryFormat::Contiguous); }

Two forward_meta(const Tensor& x, const Tensor& weight, IntArrayRef, IntArrayRef, bool) {
  return {like(x), at::empty({}, weight.options())};
}

Tensor inverse_meta(const Tensor& y, const Tensor&, IntArrayRef, IntArrayRef, bool) { return like(y); }

Two backward_meta(const OptionalTensor&, const OptionalTensor&, const Tensor& x, const Tensor& weight, IntArrayRef,
                  IntArrayRef, bool) {
  return {like(x), like(weight)};
}

Two inverse_backward_meta(const Tensor&, const Tensor& y, const Tensor& weight, IntArrayRef, IntArrayRef, bool) {
  return {like(y), like(weight)};
}

// Calls an operator by its name, for whatever device its tensors are on.
template <class Signature>
auto operator_named(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

const auto& forward_op() {
  static const auto op = operator_named<decltype(forward_cpu)>("invertbench::butterfly");
  return op;
}
const auto& inverse_op() {
  static const auto op = operator_named<decltype(inverse_cpu)>("invertbench::butterfly_inverse");
  return op;
}
const auto& backward_op() {
  static const auto op = operator_named<decltype(backward_cpu)>("invertbench::butterfly_backward");
  return op;
}
const auto& inverse_backward_op() {
  static const auto op = operator_named<decltype(inverse_backward_cpu)>("invertbench::butterfly_inverse_backward");
  return op;
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void save(AutogradContext* ctx, const Tensor& x, const Tensor& weight, IntArrayRef plan, IntArrayRef layout,
          bool shared) {
  ctx->save_for_backward({x, weight});
  ctx->saved_data["plan"] = plan.vec();
  ctx->saved_data["layout"] = layout.vec();
  ctx->saved_data["shared"] = shared;
  ctx->set_materialize_grads(false);
}

struct Forward : torch::autograd::Function<Forward> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight, IntArrayRef plan,
                               IntArrayRef layout, bool shared) {
    at::AutoDispatchBelowADInplaceOrView below;
    save(ctx, x, weight, plan, layout, shared);
    auto [y, log_det] = forward_op().call(x, weight, plan, layout, shared);
    return {y, log_det};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto given = [](const Tensor& grad) { return grad.defined() ? OptionalTensor(grad) : std::nullopt; };
    auto [dx, dweight] = backward_op().call(given(grads[0]), given(grads[1]), saved[0], saved[1],
                                            ctx->saved_data["plan"].toIntVector(),
                                            ctx->saved_data["layout"].toIntVector(), ctx->saved_data["shared"].toBool());
    return {dx, dweight, Tensor(), Tensor(), Tensor()};
  }
};

struct Inverse : torch::autograd::Function<Inverse> {
  static Tensor forward(AutogradContext* ctx, const Tensor& y, const Tensor& weight, IntArrayRef plan,
                        IntArrayRef layout, bool shared) {
    at::AutoDispatchBelowADInplaceOrView below;
    save(ctx, y, weight, plan, layout, shared);
    return inverse_op().call(y, weight, plan, layout, shared);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    if (!grads[0].defined()) return variable_list(5);
    const auto saved = ctx->get_saved_variables();
    auto [dy, dweight] = inverse_backward_op().call(
        grads[0], saved[0], saved[1], ctx->saved_data["plan"].toIntVector(), ctx->saved_data["layout"].toIntVector(),
        ctx->saved_data["shared"].toBool());
    return {dy, dweight, Tensor(), Tensor(), Tensor()};
  }
};

[[noreturn]] variable_list refuse() {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "butterfly: the compiled kernels give first derivatives only; for derivatives of "
                                     "them set INVERTBENCH_KERNELS=off, which runs the layer as plain PyTorch");
}

struct Backward : torch::autograd::Function<Backward> {
  static variable_list forward(AutogradContext*, const OptionalTensor& dy, const OptionalTensor& dlog_det,
                               const Tensor& x, const Tensor& weight, IntArrayRef plan, IntArrayRef layout, bool shared) {
    at::AutoDispatchBelowADInplaceOrView below;
    auto [dx, dweight] = backward_op().call(dy, dlog_det, x, weight, plan, layout, shared);
    return {dx, dweight};
  }
  static variable_list backward(AutogradContext*, const variable_list&) { return refuse(); }
};

struct InverseBackward : torch::autograd::Function<InverseBackward> {
  static variable_list forward(AutogradContext*, const Tensor& dx, const Tensor& y, const Tensor& weight,
                               IntArrayRef plan, IntArrayRef layout, bool shared) {
    at::AutoDispatchBelowADInplaceOrView below;
    auto [dy, dweight] = inverse_backward_op().call(dx, y, weight, plan, layout, shared);
    return {dy, dweight};
  }
  static variable_list backward(AutogradContext*, const variable_list&) { return refuse(); }
};

Two forward_autograd(const Tensor& x, const Tensor& weight, IntArrayRef plan, IntArrayRef layout, bool shared) {
  auto out = Forward::apply(x, weight, plan, layout, shared);
  return {out[0], out[1]};
}

Tensor inverse_autograd(const Tensor& y, const Tensor& weight, IntArrayRef plan, IntArrayRef layout, bool shared) {
  return Inverse::apply(y, weight, plan, layout, shared);
}

Two backward_autograd(const OptionalTensor& dy, const OptionalTensor& dlog_det, const Tensor& x, const Tensor& weight,
                      IntArrayRef plan, IntArrayRef layout, bool shared) {
  auto out = Backward::apply(dy, dlog_det, x, weight, plan, layout, shared);
  return {out[0], out[1]};
}

Two inverse_backward_autograd(const Tensor& dx, const Tensor& y, const Tensor& weight, IntArrayRef plan,
                              IntArrayRef layout, bool shared) {
  auto out = InverseBackward::apply(dx, y, weight, plan, layout, shared);
  return {out[0], out[1]};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(invertbench, m) {
  m.def("butterfly(Tensor x, Tensor weight, int[] plan, int[] layout, bool shared) -> (Tensor, Tensor)");
  m.def("butterfly_inverse(Tensor y, Tensor weight, int[] plan, int[] layout, bool shared) -> Tensor");
  m.def(
      "butterfly_backward(Tensor? grad_y, Tensor? grad_log_det, Tensor x, Tensor weight, int[] plan, int[] layout, "
      "bool shared) -> (Tensor, Tensor)");
  m.def(
      "butterfly_inverse_backward(Tensor grad_x, Tensor y, Tensor weight, int[] plan, int[] layout, bool shared) -> "
      "(Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(invertbench, CPU, m) {
  m.impl("butterfly", forward_cpu);
  m.impl("butterfly_inverse", inverse_cpu);
  m.impl("butterfly_backward", backward_cpu);
  m.impl("butterfly_inverse_backward", inverse_backward_cpu);
}

TORCH_LIBRARY_IMPL(invertbench, Meta, m) {
  m.impl("butterfly", forward_meta);
  m.impl("butterfly_inverse", inverse_meta);
  m.impl("butterfly_backward", backward_meta);
  m.impl("butterfly_inverse_backward", inverse_backward_meta);
}

TORCH_LIBRARY_IMPL(invertbench, Autograd, m) {
  m.impl("butterfly", forward_autograd);
  m.impl("butterfly_inverse", inverse_autograd);
  m.impl("butterfly_backward", backward_autograd);
  m.impl("butterfly_inverse_backward", inverse_backward_autograd);
}

}  // namespace invertbench
