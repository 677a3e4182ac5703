// The derivatives of `invertbench::solve_rows`: with the gradient g of x, that of y is the solve of the transposed
// system, whose windows lie below, so that of images turned upside down; and that of the weight is minus the correlation
// of x with it. Both are differentiable.

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution_backward.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "convolution/solve_rows.h"
#include "dispatch.h"

namespace invertbench::solving {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor call(const at::Tensor& y, const at::Tensor& weight) {
  static const auto op = operator_named<decltype(solve_rows)>("invertbench::solve_rows");
  return op.call(y, weight);
}

struct SolveRows : torch::autograd::Function<SolveRows> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& y, const at::Tensor& weight) {
    const at::AutoDispatchBelowADInplaceOrView below;
    at::Tensor x = call(y, weight);
    context->save_for_backward({x, weight});
    return x;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor of_y = call(gradients[0].flip(2), weight.transpose(0, 1).flip(3)).flip(2);
    if (!context->needs_input_grad(1)) return {of_y, {}};
    const int64_t depth = weight.size(2), side = weight.size(3) / 2;
    const at::Tensor padded = at::constant_pad_nd(x, {side, side, depth, -1});
    const at::Tensor of_weight =
        std::get<1>(at::convolution_backward(of_y, padded, weight, std::nullopt, {1, 1}, {0, 0}, {1, 1}, false, {0, 0},
                                             1, {false, true, false}));
    return {of_y, of_weight.neg()};
  }
};

at::Tensor with_gradient(const at::Tensor& y, const at::Tensor& weight) { return SolveRows::apply(y, weight); }

}  // namespace

TORCH_LIBRARY_IMPL(invertbench, AutogradCPU, m) { m.impl("solve_rows", TORCH_FN(with_gradient)); }

}  // namespace invertbench::solving
