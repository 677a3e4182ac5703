// The derivatives of the operators of this folder.

#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/linalg_inv_ex.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros_like.h>

#include "affine/operators.h"
#include "autograd.h"

// The derivatives of `invertbench::mix_channels`. Those of its gradients are those of PyTorch's operators.
namespace invertbench::mixing {
namespace {

struct Mix : torch::autograd::Function<Mix> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, weight});
    return INVERTBENCH_OPERATOR("mix_channels", decltype(mix)).call(x, weight);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &of_y = gradients[0];
    if (!at::GradMode::is_enabled()) {
      const auto& op = INVERTBENCH_OPERATOR("mix_channels_backward", decltype(mix_backward));
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

// The derivatives of `invertbench::actnorm`. Those of its gradients are those of PyTorch's operators.
namespace invertbench::scales {
namespace {

struct ActNorm : torch::autograd::Function<ActNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& shift,
                               const at::Tensor& log_scale) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, shift, log_scale});
    const auto [y, log_det] = INVERTBENCH_OPERATOR("actnorm", decltype(actnorm)).call(x, shift, log_scale);
    return {y, log_det};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &shift = saved[1], &log_scale = saved[2], &of_y = gradients[0];
    if (!at::GradMode::is_enabled()) {
      const auto& op = INVERTBENCH_OPERATOR("actnorm_backward", decltype(actnorm_backward));
      const auto [of_x, of_shift, of_log_scale] = op.call(of_y, gradients[1], x, shift, log_scale);
      return {of_x, of_shift, of_log_scale};
    }
    std::vector<int64_t> columns(x.dim(), 1), others{0};
    columns[1] = x.size(1);
    for (int64_t axis = 2; axis < x.dim(); ++axis) others.push_back(axis);
    const at::Tensor of_x = of_y * log_scale.exp().view(columns);
    return {of_x, of_x.sum(others), (of_x * (x + shift.view(columns))).sum(others) + places_of(x) * gradients[1]};
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

// The derivatives of `invertbench::plu` and of `invertbench::log_abs_det`. Those of their gradients are those of
// PyTorch's operators.
namespace invertbench::factors {
namespace {

struct FromFactors : torch::autograd::Function<FromFactors> {
  static variable_list forward(AutogradContext* context, Factor lower, Factor upper, Factor log_s, Factor sign,
                               Factor permutation, int64_t positions) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({lower, upper, log_s, sign, permutation});
    context->saved_data["positions"] = positions;
    const auto& op = INVERTBENCH_OPERATOR("plu", decltype(plu));
    const auto [weight, log_det] = op.call(lower, upper, log_s, sign, permutation, positions);
    return {weight, log_det};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &lower = saved[0], &upper = saved[1], &log_s = saved[2], &sign = saved[3], &rows = saved[4];
    const int64_t positions = context->saved_data["positions"].toInt();
    if (!at::GradMode::is_enabled()) {
      const auto& op = INVERTBENCH_OPERATOR("plu_backward", decltype(plu_backward));
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
