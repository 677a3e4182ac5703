// The derivatives of `invertbench::actnorm`. Those of its gradients are those of PyTorch's operators.

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <vector>

#include "affine/scales.h"
#include "dispatch.h"

namespace invertbench::scales {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct ActNorm : torch::autograd::Function<ActNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& shift,
                               const at::Tensor& log_scale) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, shift, log_scale});
    static const auto op = operator_named<decltype(actnorm)>("invertbench::actnorm");
    const auto [y, log_det] = op.call(x, shift, log_scale);
    return {y, log_det};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &shift = saved[1], &log_scale = saved[2], &of_y = gradients[0];
    if (!at::GradMode::is_enabled()) {
      static const auto op = operator_named<decltype(actnorm_backward)>("invertbench::actnorm_backward");
      const auto [of_x, of_shift, of_log_scale] = op.call(of_y, gradients[1], x, shift, log_scale);
      return {of_x, of_shift, of_log_scale};
    }
    std::vector<int64_t> columns(x.dim(), 1), others{0};
    columns[1] = x.size(1);
    for (int64_t axis = 2; axis < x.dim(); ++axis) others.push_back(axis);
    const at::Tensor of_x = of_y * log_scale.exp().view(columns);
    return {of_x, of_x.sum(others), (of_x * (x + shift.view(columns))).sum(others) + positions(x) * gradients[1]};
  }
};

std::tuple<at::Tensor, at::Tensor> actnorm_with_gradient(const at::Tensor& x, const at::Tensor& shift,
                                                         const at::Tensor& log_scale) {
  const variable_list results = ActNorm::apply(x, shift, log_scale);
  return {results[0], results[1]};
}

}  // namespace

TORCH_LIBRARY_IMPL(invertbench, AutogradCPU, m) {
  m.impl("actnorm", TORCH_FN(actnorm_with_gradient));
}

}  // namespace invertbench::scales
