// `invertbench::elu`: x where x >= 0, else exp x - 1, on a processor. torch computes it by an `expm1` that takes several
// times as long as its `exp`.
//
// The derivative is 1 or y + 1: only the output is saved, which the next layer saves as well.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/elu_backward.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>


#define INVERTBENCH_BODY "coupling/elu_loop.h"
#include "simd/each.h"

namespace invertbench {
namespace {

constexpr int64_t WORTH_A_THREAD = 32768;  // numbers, as in torch

template <class T>
decltype(&portable::elu_loop<T>) loop() {
#if defined(__x86_64__)
  switch (instructions()) {
    case Instructions::avx512: return avx512::elu_loop<T>;
    case Instructions::avx2: return avx2::elu_loop<T>;
    default: break;
  }
#endif
  return portable::elu_loop<T>;
}

template <class T>
void run(const at::Tensor& x, at::Tensor& y) {
  const T* const from = x.const_data_ptr<T>();
  T* const to = y.data_ptr<T>();
  at::parallel_for(0, x.numel(), WORTH_A_THREAD, [&](int64_t begin, int64_t end) {
    loop<T>()(from + begin, to + begin, end - begin);
  });
}

at::Tensor forward(const at::Tensor& x) {
  TORCH_CHECK_TYPE(x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble, "elu: x is ", x.scalar_type(),
                   "; use float32 or float64");
  at::Tensor y = at::empty_like(x);  // in the order of x in memory, if x has no gaps
  const at::Tensor source = x.strides() == y.strides() ? x : at::empty_like(y).copy_(x);
  x.scalar_type() == at::kFloat ? run<float>(source, y) : run<double>(source, y);
  return y;
}

at::Tensor call(const at::Tensor& x) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("invertbench::elu", "").typed<at::Tensor(const at::Tensor&)>();
  const at::AutoDispatchBelowADInplaceOrView below;
  return op.call(x);
}

struct Elu : torch::autograd::Function<Elu> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    at::Tensor y = call(x);
    context->save_for_backward({y});
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor y = context->get_saved_variables()[0];
    return {at::elu_backward(gradients[0], 1, 1, 1, /*is_result=*/true, y)};
  }
};

at::Tensor with_gradient(const at::Tensor& x) {
  return x.requires_grad() && at::GradMode::is_enabled() ? Elu::apply(x) : call(x);
}

at::Tensor shape_only(const at::Tensor& x) { return at::empty_like(x); }

}  // namespace

TORCH_LIBRARY_FRAGMENT(invertbench, m) { m.def("elu(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(invertbench, CPU, m) { m.impl("elu", TORCH_FN(forward)); }
TORCH_LIBRARY_IMPL(invertbench, Autograd, m) { m.impl("elu", TORCH_FN(with_gradient)); }
TORCH_LIBRARY_IMPL(invertbench, Meta, m) { m.impl("elu", TORCH_FN(shape_only)); }

}  // namespace invertbench
