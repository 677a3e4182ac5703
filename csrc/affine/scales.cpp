// Scales and shifts of a flow's step, each in one pass over memory, on a processor. `invertbench::actnorm`:
// (x + shift) exp(log_scale) with a shift and a scale for each channel. `invertbench::affine_coupling`: the kept
// channels beside x exp(log_scale) + shift of the moved ones, and the sums of log_scale.
//
// Every event's log-determinant is summed by one thread, and gradients of channels over SLABS parts of the events, in
// their order: the same for any number of threads. Derivatives of the gradients are those of PyTorch's operators.

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <vector>

#include "affine/operands.h"
#include "dispatch.h"
#include "simd/cpu.h"

#define INVERTBENCH_BODY "affine/scales_rows.h"
#include "simd/each.h"

namespace invertbench {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t SLABS = 32;
constexpr int64_t NUMBERS_WORTH_A_THREAD = 16384;

template <class T>
struct Way {
  decltype(&portable::forward_entries<T>) forward_entries;
  decltype(&portable::backward_entries<T>) backward_entries;
  decltype(&portable::forward_channel<T>) forward_channel;
  decltype(&portable::backward_channel<T>) backward_channel;
};

template <class T>
Way<T> way() {
#define INVERTBENCH_WAY(set) \
  Way<T> { set::forward_entries<T>, set::backward_entries<T>, set::forward_channel<T>, set::backward_channel<T> }
#if defined(__x86_64__)
  switch (instructions()) {
    case Instructions::avx512: return INVERTBENCH_WAY(avx512);
    case Instructions::avx2: return INVERTBENCH_WAY(avx2);
    default: break;
  }
#endif
  return INVERTBENCH_WAY(portable);
#undef INVERTBENCH_WAY
}

// (N, kept, *spatial) and (N, moved, *spatial) -> (N, kept + moved, *spatial), and the sums of log_scale, (N,).
std::tuple<at::Tensor, at::Tensor> coupling(const at::Tensor& kept, const at::Tensor& moved,
                                            const at::Tensor& log_scale, const at::Tensor& shift) {
  TORCH_CHECK_VALUE(moved.dim() > 1 && kept.dim() > 1, "affine_coupling: ", moved.sizes(), " has no channels");
  std::vector<int64_t> sizes = moved.sizes().vec();
  sizes[1] = kept.size(1);
  TORCH_CHECK_VALUE(log_scale.sizes() == moved.sizes() && shift.sizes() == moved.sizes() && kept.sizes() == sizes,
                    "affine_coupling: kept channels ", kept.sizes(), ", a scale ", log_scale.sizes(), " and a shift ",
                    shift.sizes(), " do not fit ", moved.sizes());
  const at::Tensor k = rows(kept), x = rows(moved), s = rows(log_scale), t = rows(shift);
  sizes[1] += moved.size(1);
  at::Tensor y = at::empty(sizes, x.options()), log_det = at::empty({x.size(0)}, x.options());
  in_precision("affine_coupling", x, {k, s, t}, [&](auto zero) {
    using T = decltype(zero);
    const Way<T> set = way<T>();
    const Rows<T> from_k(k), from_x(x), from_s(s), from_t(t);
    const int64_t before = size_of(k), count = size_of(x);
    T* const to = y.data_ptr<T>();
    T* const sums = log_det.data_ptr<T>();
    at::parallel_for(0, x.size(0), grain(count, NUMBERS_WORTH_A_THREAD), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        T* const row = to + n * (before + count);
        std::copy(from_k[n], from_k[n] + before, row);
        sums[n] = T(set.forward_entries(count, from_x[n], from_s[n], from_t[n], row + before));
      }
    });
  });
  return {y, log_det};
}

// The gradients of the kept and the moved channels together, and of `log_scale`; that of `shift` is a part of y's.
std::tuple<at::Tensor, at::Tensor> coupling_backward(const at::Tensor& of_y, const at::Tensor& of_log_det,
                                                     const at::Tensor& moved, const at::Tensor& log_scale) {
  TORCH_CHECK_VALUE(moved.dim() > 1 && log_scale.sizes() == moved.sizes() && of_y.dim() == moved.dim() &&
                        of_y.size(0) == moved.size(0) && of_y.size(1) >= moved.size(1) &&
                        of_y.sizes().slice(2) == moved.sizes().slice(2) && of_log_det.numel() == moved.size(0),
                    "affine_coupling: gradients ", of_y.sizes(), " and ", of_log_det.sizes(), " do not fit ",
                    moved.sizes());
  const at::Tensor g = rows(of_y), x = rows(moved), s = rows(log_scale), sums = of_log_det.contiguous();
  at::Tensor of_x = at::empty(of_y.sizes(), x.options()), of_s = at::empty(moved.sizes(), x.options());
  in_precision("affine_coupling", x, {g, s, sums}, [&](auto zero) {
    using T = decltype(zero);
    const Way<T> set = way<T>();
    const Rows<T> from_g(g), from_x(x), from_s(s);
    const int64_t all = size_of(g), count = size_of(x), kept = all - count;
    T* const to = of_x.data_ptr<T>();
    at::parallel_for(0, x.size(0), grain(count, NUMBERS_WORTH_A_THREAD), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        std::copy(from_g[n], from_g[n] + kept, to + n * all);
        set.backward_entries(count, from_g[n] + kept, sums.const_data_ptr<T>()[n], from_x[n], from_s[n],
                             to + n * all + kept, of_s.data_ptr<T>() + n * count);
      }
    });
  });
  return {of_x, of_s};
}

void check_channels(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& log_scale) {
  TORCH_CHECK_VALUE(x.dim() > 1 && shift.numel() == x.size(1) && log_scale.numel() == x.size(1), "actnorm: a shift ",
                    shift.sizes(), " and a scale ", log_scale.sizes(), " do not fit the channels of ", x.sizes());
}

at::Tensor actnorm(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& log_scale) {
  check_channels(x, shift, log_scale);
  const at::Tensor from = rows(x), by = shift.contiguous(), scale = log_scale.contiguous().exp();
  at::Tensor y = at::empty(x.sizes(), x.options());
  in_precision("actnorm", from, {by, scale}, [&](auto zero) {
    using T = decltype(zero);
    const Way<T> set = way<T>();
    const Rows<T> from_x(from);
    const int64_t channels = x.size(1), all = size_of(x), count = all / std::max<int64_t>(channels, 1);
    at::parallel_for(0, x.size(0), grain(all, NUMBERS_WORTH_A_THREAD), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        for (int64_t c = 0; c < channels; ++c) {
          set.forward_channel(count, from_x[n] + c * count, by.const_data_ptr<T>()[c], scale.const_data_ptr<T>()[c],
                              y.data_ptr<T>() + n * all + c * count);
        }
      }
    });
  });
  return y;
}

// The gradients of x, shift and log_scale.
std::tuple<at::Tensor, at::Tensor, at::Tensor> actnorm_backward(const at::Tensor& of_y, const at::Tensor& x,
                                                                const at::Tensor& shift, const at::Tensor& log_scale) {
  check_channels(x, shift, log_scale);
  TORCH_CHECK_VALUE(of_y.sizes() == x.sizes(), "actnorm: a gradient ", of_y.sizes(), " does not fit ", x.sizes());
  const at::Tensor g = rows(of_y), from = rows(x), by = shift.contiguous(), scale = log_scale.contiguous().exp();
  at::Tensor of_x = at::empty(x.sizes(), x.options());
  const int64_t channels = x.size(1), all = size_of(x), count = all / std::max<int64_t>(channels, 1);
  const int64_t slabs = std::clamp<int64_t>(x.numel() / NUMBERS_WORTH_A_THREAD, 1, std::min(SLABS, x.size(0) + 1));
  const at::Tensor sums = at::zeros({slabs, 2, channels}, x.options().dtype(at::kDouble));
  in_precision("actnorm", from, {g, by, scale}, [&](auto zero) {
    using T = decltype(zero);
    const Way<T> set = way<T>();
    const Rows<T> from_g(g), from_x(from);
    at::parallel_for(0, slabs, 1, [&](int64_t begin, int64_t end) {
      for (int64_t slab = begin; slab < end; ++slab) {
        double* const own = sums.data_ptr<double>() + slab * 2 * channels;
        for (int64_t n = slab * x.size(0) / slabs; n < (slab + 1) * x.size(0) / slabs; ++n) {
          for (int64_t c = 0; c < channels; ++c) {
            set.backward_channel(count, from_g[n] + c * count, from_x[n] + c * count, by.const_data_ptr<T>()[c],
                                 scale.const_data_ptr<T>()[c], of_x.data_ptr<T>() + n * all + c * count, own[c],
                                 own[channels + c]);
          }
        }
      }
    });
  });
  const std::vector<at::Tensor> totals = sums.sum(0).to(x.scalar_type()).unbind();
  return {of_x, totals[0], totals[1]};
}

struct ActNorm : torch::autograd::Function<ActNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& shift,
                            const at::Tensor& log_scale) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, shift, log_scale});
    static const auto op = operator_named<decltype(actnorm)>("invertbench::actnorm");
    return op.call(x, shift, log_scale);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &shift = saved[1], &log_scale = saved[2];
    if (!at::GradMode::is_enabled()) {
      static const auto op = operator_named<decltype(actnorm_backward)>("invertbench::actnorm_backward");
      const auto [of_x, of_shift, of_log_scale] = op.call(gradients[0], x, shift, log_scale);
      return {of_x, of_shift, of_log_scale};
    }
    std::vector<int64_t> columns(x.dim(), 1), others{0};
    columns[1] = x.size(1);
    for (int64_t axis = 2; axis < x.dim(); ++axis) others.push_back(axis);
    const at::Tensor of_x = gradients[0] * log_scale.exp().view(columns);
    return {of_x, of_x.sum(others), (of_x * (x + shift.view(columns))).sum(others)};
  }
};

struct Coupling : torch::autograd::Function<Coupling> {
  static variable_list forward(AutogradContext* context, const at::Tensor& kept, const at::Tensor& moved,
                               const at::Tensor& log_scale, const at::Tensor& shift) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({moved, log_scale});
    static const auto op = operator_named<decltype(coupling)>("invertbench::affine_coupling");
    auto [y, log_det] = op.call(kept, moved, log_scale, shift);
    return {y, log_det};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &moved = saved[0], &log_scale = saved[1], &of_y = gradients[0], &of_log_det = gradients[1];
    const int64_t count = moved.size(1), kept = of_y.size(1) - count;
    const at::Tensor of_shift = of_y.narrow(1, kept, count);
    if (!at::GradMode::is_enabled()) {
      static const auto op = operator_named<decltype(coupling_backward)>("invertbench::affine_coupling_backward");
      const auto [of_x, of_log_scale] = op.call(of_y, of_log_det, moved, log_scale);
      return {of_x.narrow(1, 0, kept), of_x.narrow(1, kept, count), of_log_scale, of_shift};
    }
    std::vector<int64_t> events(moved.dim(), 1);
    events[0] = moved.size(0);
    const at::Tensor of_moved = of_shift * log_scale.exp();
    return {of_y.narrow(1, 0, kept), of_moved, of_moved * moved + of_log_det.view(events), of_shift};
  }
};

at::Tensor actnorm_with_gradient(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& log_scale) {
  return ActNorm::apply(x, shift, log_scale);
}

std::tuple<at::Tensor, at::Tensor> coupling_with_gradient(const at::Tensor& kept, const at::Tensor& moved,
                                                          const at::Tensor& log_scale, const at::Tensor& shift) {
  const variable_list results = Coupling::apply(kept, moved, log_scale, shift);
  return {results[0], results[1]};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(invertbench, m) {
  m.def("affine_coupling(Tensor kept, Tensor moved, Tensor log_scale, Tensor shift) -> (Tensor, Tensor)");
  m.def("affine_coupling_backward(Tensor of_y, Tensor of_log_det, Tensor moved, Tensor log_scale) "
        "-> (Tensor, Tensor)");
  m.def("actnorm(Tensor x, Tensor shift, Tensor log_scale) -> Tensor");
  m.def("actnorm_backward(Tensor of_y, Tensor x, Tensor shift, Tensor log_scale) -> (Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(invertbench, CPU, m) {
  m.impl("affine_coupling", TORCH_FN(coupling));
  m.impl("affine_coupling_backward", TORCH_FN(coupling_backward));
  m.impl("actnorm", TORCH_FN(actnorm));
  m.impl("actnorm_backward", TORCH_FN(actnorm_backward));
}
TORCH_LIBRARY_IMPL(invertbench, AutogradCPU, m) {
  m.impl("affine_coupling", TORCH_FN(coupling_with_gradient));
  m.impl("actnorm", TORCH_FN(actnorm_with_gradient));
}

}  // namespace invertbench
