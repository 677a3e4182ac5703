// The derivatives of `invertbench::plu` and of `invertbench::log_abs_det`. Those of their gradients are those of
// PyTorch's operators.

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/linalg_inv_ex.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "affine/weights.h"
#include "dispatch.h"

namespace invertbench::factors {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct FromFactors : torch::autograd::Function<FromFactors> {
  static variable_list forward(AutogradContext* context, Factor lower, Factor upper, Factor log_s, Factor sign,
                               Factor permutation, int64_t positions) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({lower, upper, log_s, sign, permutation});
    context->saved_data["positions"] = positions;
    static const auto op = operator_named<decltype(plu)>("invertbench::plu");
    const auto [weight, log_det] = op.call(lower, upper, log_s, sign, permutation, positions);
    return {weight, log_det};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &lower = saved[0], &upper = saved[1], &log_s = saved[2], &sign = saved[3], &rows = saved[4];
    const int64_t positions = context->saved_data["positions"].toInt();
    if (!at::GradMode::is_enabled()) {
      static const auto op = operator_named<decltype(plu_backward)>("invertbench::plu_backward");
      const auto [of_lower, of_upper, of_log_s] =
          op.call(gradients[0], gradients[1], lower, upper, log_s, sign, rows, positions);
      return {of_lower, of_upper, of_log_s, {}, {}, {}};
    }
    const at::Tensor diagonal = sign * log_s.exp(), u = upper.triu(1) + diagonal.diag();
    const at::Tensor of_product = at::index_copy(at::zeros_like(gradients[0]), 0, rows, gradients[0]);
    const at::Tensor of_u = at::addmm(of_product, lower.tril(-1).t(), of_product);
    const at::Tensor of_log_s = of_u.diagonal() * diagonal + positions * gradients[1];
    return {at::mm(of_product, u.t()).tril(-1), of_u.triu(1), of_log_s, {}, {}, {}};
  }
};

Pair plu_with_gradient(Factor lower, Factor upper, Factor log_s, Factor sign, Factor permutation, int64_t positions) {
  const variable_list results = FromFactors::apply(lower, upper, log_s, sign, permutation, positions);
  return {results[0], results[1]};
}

struct LogAbsDet : torch::autograd::Function<LogAbsDet> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& matrix, int64_t positions) {
    const auto [value, slope] = eliminated(matrix, positions, true);
    context->save_for_backward({matrix, slope});
    context->saved_data["positions"] = positions;
    return value;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    if (!at::GradMode::is_enabled()) return {saved[1] * gradients[0], {}};
    const at::Tensor inverse = std::get<0>(at::linalg_inv_ex(saved[0]));
    return {inverse.t() * (context->saved_data["positions"].toInt() * gradients[0]), {}};
  }
};

at::Tensor log_abs_det_with_gradient(const at::Tensor& matrix, int64_t positions) {
  if (at::GradMode::is_enabled() && matrix.requires_grad()) return LogAbsDet::apply(matrix, positions);
  return log_abs_det(matrix, positions);
}

}  // namespace

TORCH_LIBRARY_IMPL(invertbench, AutogradCPU, m) {
  m.impl("plu", TORCH_FN(plu_with_gradient));
  m.impl("log_abs_det", TORCH_FN(log_abs_det_with_gradient));
}

}  // namespace invertbench::factors
