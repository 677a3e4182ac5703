// The derivatives of `invertbench::mix_channels`. Those of its gradients are those of PyTorch's operators.

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/bmm.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "affine/matrix.h"
#include "dispatch.h"

namespace invertbench::mixing {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Mix : torch::autograd::Function<Mix> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, weight});
    static const auto op = operator_named<decltype(mix)>("invertbench::mix_channels");
    return op.call(x, weight);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &of_y = gradients[0];
    if (!at::GradMode::is_enabled()) {
      static const auto op = operator_named<decltype(mix_backward)>("invertbench::mix_channels_backward");
      const auto [of_x, of_weight] = op.call(of_y, x, weight);
      return {of_x, of_weight};
    }
    const at::Tensor flat = of_y.flatten(2), back = weight.t().expand({x.size(0), weight.size(1), weight.size(0)});
    return {at::bmm(back, flat).view(x.sizes()), at::bmm(flat, x.flatten(2).transpose(1, 2)).sum(0)};
  }
};

at::Tensor with_gradient(const at::Tensor& x, const at::Tensor& weight) { return Mix::apply(x, weight); }

}  // namespace

TORCH_LIBRARY_IMPL(invertbench, AutogradCPU, m) { m.impl("mix_channels", TORCH_FN(with_gradient)); }

}  // namespace invertbench::mixing
