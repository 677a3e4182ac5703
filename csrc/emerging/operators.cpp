// `invertbench::emerging_inverse`: x with conv_w2(conv_w1(x)) + bias = y, where both kernels are masked as in
// layers/emerging.py. Masked entries are not read, and their gradients are zero.
//
// Backward: with x = W1^-1 W2^-1 (y - bias) and the gradient g of x, the gradient of y is W2^-T W1^-T g. The transpose
// of a masked convolution has the transposed kernel, turned about, and the mask of the other one; so this is the
// inverse of an Emerging convolution again, with w1 and w2 in each other's place. The gradients of the kernels are
// correlations of both stages, x and W1 x, with minus the gradients of their right-hand sides, W2^T (gradient of y)
// and the gradient of y. All of these are differentiable operators: so is backward.

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <optional>
#include <vector>

#include "emerging/operands.h"

namespace invertbench {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

at::Tensor call(const at::Tensor& y, const at::Tensor& weight1, const at::Tensor& weight2,
                const std::optional<at::Tensor>& bias) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("invertbench::emerging_inverse", "")
                             .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                               const std::optional<at::Tensor>&)>();
  return op.call(y, weight1, weight2, bias);
}

std::vector<int64_t> all_axes(const at::Tensor& tensor, int64_t from) {
  std::vector<int64_t> axes;
  for (int64_t axis = from; axis < tensor.dim(); ++axis) axes.push_back(axis);
  return axes;
}

// True where the mask of w1 is zero.
at::Tensor hidden_from_first(const at::Tensor& weight) {
  at::Tensor hidden = at::ones_like(weight, weight.options().dtype(at::kBool));
  at::Tensor kept = hidden, centre = hidden;
  for (int64_t axis = 2; axis < weight.dim(); ++axis) {
    kept = kept.slice(axis, weight.size(axis) / 2);
    centre = centre.slice(axis, weight.size(axis) / 2, weight.size(axis) / 2 + 1);
  }
  kept.zero_();
  centre = centre.flatten(1);  // a view, as the other axes have length 1
  centre.copy_(at::ones_like(centre).triu(1));
  return hidden;
}

at::Tensor transposed_kernel(const at::Tensor& weight) { return weight.transpose(0, 1).flip(all_axes(weight, 2)); }

std::vector<int64_t> same_padding(const at::Tensor& weight) {
  std::vector<int64_t> padding;
  for (int64_t axis = 2; axis < weight.dim(); ++axis) padding.push_back(weight.size(axis) / 2);
  return padding;
}

at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight) {
  const std::vector<int64_t> ones(weight.dim() - 2, 1), zeros(weight.dim() - 2, 0);
  return at::convolution(x, weight, std::nullopt, ones, same_padding(weight), ones, false, zeros, 1);
}

at::Tensor kernel_gradient(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& weight) {
  const std::vector<int64_t> ones(weight.dim() - 2, 1), zeros(weight.dim() - 2, 0);
  return std::get<1>(at::convolution_backward(gradient, x, weight, std::nullopt, ones, same_padding(weight), ones,
                                              false, zeros, 1, {false, true, false}));
}

struct EmergingInverse : torch::autograd::Function<EmergingInverse> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& y, const at::Tensor& weight1,
                            const at::Tensor& weight2, const std::optional<at::Tensor>& bias) {
    const at::AutoDispatchBelowADInplaceOrView below;
    at::Tensor x = call(y, weight1, weight2, bias);
    context->save_for_backward({x, weight1, weight2});
    context->saved_data["has_bias"] = bias.has_value();
    return x;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Variable &x = saved[0], &weight1 = saved[1], &weight2 = saved[2];
    const at::Tensor of_y =
        call(gradients[0], transposed_kernel(weight2), transposed_kernel(weight1), std::nullopt);
    at::Tensor of_weight1, of_weight2, of_bias;
    const at::Tensor hidden1 = hidden_from_first(weight1), hidden2 = hidden1.flip(all_axes(hidden1, 0));
    if (context->needs_input_grad(1)) {
      const at::Tensor between = convolve(of_y, transposed_kernel(weight2.masked_fill(hidden2, 0)));
      of_weight1 = kernel_gradient(x, between, weight1).neg().masked_fill(hidden1, 0);
    }
    if (context->needs_input_grad(2)) {
      const at::Tensor between = convolve(x, weight1.masked_fill(hidden1, 0));
      of_weight2 = kernel_gradient(between, of_y, weight2).neg().masked_fill(hidden2, 0);
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(3)) {
      std::vector<int64_t> axes = all_axes(of_y, 2);
      axes.push_back(0);
      of_bias = of_y.sum(axes).neg();
    }
    return {of_y, of_weight1, of_weight2, of_bias};
  }
};

at::Tensor with_gradient(const at::Tensor& y, const at::Tensor& weight1, const at::Tensor& weight2,
                         const std::optional<at::Tensor>& bias) {
  const bool wanted = y.requires_grad() || weight1.requires_grad() || weight2.requires_grad() ||
                      (bias.has_value() && bias->requires_grad());
  if (wanted && at::GradMode::is_enabled()) return EmergingInverse::apply(y, weight1, weight2, bias);
  const at::AutoDispatchBelowADInplaceOrView below;
  return call(y, weight1, weight2, bias);
}

at::Tensor shape_only(const at::Tensor& y, const at::Tensor& weight1, const at::Tensor& weight2,
                      const std::optional<at::Tensor>& bias) {
  check_emerging_operands(y, weight1, weight2, bias);
  return at::empty_symint(y.sym_sizes(), y.options().memory_format(at::MemoryFormat::Contiguous));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(invertbench, m) {
  m.def("emerging_inverse(Tensor y, Tensor weight1, Tensor weight2, Tensor? bias) -> Tensor");
}
TORCH_LIBRARY_IMPL(invertbench, Autograd, m) { m.impl("emerging_inverse", TORCH_FN(with_gradient)); }
TORCH_LIBRARY_IMPL(invertbench, Meta, m) { m.impl("emerging_inverse", TORCH_FN(shape_only)); }

}  // namespace invertbench
