// The derivatives of `invertbench::circular` and of `invertbench::circular_weight`: these two operators again.

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <optional>
#include <vector>

#include "convolution/circular.h"
#include "dispatch.h"

namespace invertbench::circular {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor transposed(const at::Tensor& weight) {
  std::vector<int64_t> axes;
  for (int64_t axis = 2; axis < weight.dim(); ++axis) axes.push_back(axis);
  return weight.transpose(0, 1).flip(axes);
}

at::Tensor call(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias, int64_t before) {
  static const auto op = operator_named<decltype(circular)>("invertbench::circular");
  return op.call(x, weight, bias, before);
}

at::Tensor call_weight(const at::Tensor& x, const at::Tensor& of_y, at::IntArrayRef sizes, int64_t before) {
  static const auto op = operator_named<decltype(circular_weight)>("invertbench::circular_weight");
  return op.call(x, of_y, sizes, before);
}

struct Circular : torch::autograd::Function<Circular> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, int64_t before) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, weight});
    context->saved_data["before"] = before;
    context->saved_data["has_bias"] = bias.has_value();
    return call(x, weight, bias, before);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &of_y = gradients[0];
    const int64_t before = context->saved_data["before"].toInt();
    at::Tensor of_x, of_weight, of_bias;
    if (context->needs_input_grad(0)) of_x = call(of_y, transposed(weight), std::nullopt, weight.size(2) - 1 - before);
    if (context->needs_input_grad(1)) of_weight = call_weight(x, of_y, weight.sizes().slice(2), before);
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) {
      of_bias = of_y.flatten(2).sum(at::IntArrayRef{0, 2});
    }
    return {of_x, of_weight, of_bias, {}};
  }
};

struct CircularWeight : torch::autograd::Function<CircularWeight> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& of_y,
                            at::IntArrayRef sizes, int64_t before) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, of_y});
    context->saved_data["before"] = before;
    return call_weight(x, of_y, sizes, before);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &of_y = saved[1], &weight = gradients[0];
    const int64_t before = context->saved_data["before"].toInt();
    return {call(of_y, transposed(weight), std::nullopt, weight.size(2) - 1 - before),
            call(x, weight, std::nullopt, before), {}, {}};
  }
};

at::Tensor with_gradient(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                         int64_t before) {
  return Circular::apply(x, weight, bias, before);
}

at::Tensor weight_with_gradient(const at::Tensor& x, const at::Tensor& of_y, at::IntArrayRef sizes, int64_t before) {
  return CircularWeight::apply(x, of_y, sizes, before);
}

}  // namespace

TORCH_LIBRARY_IMPL(invertbench, AutogradCPU, m) {
  m.impl("circular", TORCH_FN(with_gradient));
  m.impl("circular_weight", TORCH_FN(weight_with_gradient));
}

}  // namespace invertbench::circular
