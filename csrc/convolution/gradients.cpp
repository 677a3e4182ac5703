// The derivatives of the operators of this folder.

#include <ATen/ops/complex.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/linalg_inv_ex.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/real.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include "convolution/operators.h"
#include "autograd.h"

// The derivatives of `invertbench::circular` and of `invertbench::circular_weight`: these two operators again.
namespace invertbench::circular {
namespace {

at::Tensor transposed(const at::Tensor& weight) {
  std::vector<int64_t> axes;
  for (int64_t axis = 2; axis < weight.dim(); ++axis) axes.push_back(axis);
  return weight.transpose(0, 1).flip(axes);
}

at::Tensor call(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias, int64_t before) {
  return INVERTBENCH_OPERATOR("circular", decltype(circular)).call(x, weight, bias, before);
}

at::Tensor call_weight(const at::Tensor& x, const at::Tensor& of_y, at::IntArrayRef sizes, int64_t before) {
  return INVERTBENCH_OPERATOR("circular_weight", decltype(circular_weight)).call(x, of_y, sizes, before);
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

// The derivatives of `invertbench::solve_rows`: with the gradient g of x, that of y is the solve of the transposed
// system, whose windows lie below, so that of images turned upside down; and that of the weight is minus the correlation
// of x with it. Both are differentiable.
namespace invertbench::solving {
namespace {

at::Tensor call(const at::Tensor& y, const at::Tensor& weight) {
  return INVERTBENCH_OPERATOR("solve_rows", decltype(solve_rows)).call(y, weight);
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

// The derivatives of `invertbench::spectral_log_det`. Those of its gradient are those of PyTorch's operators.
namespace invertbench::spectrum {
namespace {

// The gradient in PyTorch's operators, which are differentiable.
at::Tensor plain_slope(const at::Tensor& weight, const at::Tensor& waves, int64_t width) {
  const int64_t channels = weight.size(0);
  const at::Tensor taps = weight.flatten(2).flatten(0, 1).t().to(at::kDouble), parts = at::matmul(waves, taps);
  const at::Tensor matrices = at::complex(parts[0], parts[1]).view({-1, channels, channels});
  const at::Tensor inverse = std::get<0>(at::linalg_inv_ex(matrices));
  std::vector<double> counts;
  for (int64_t f = 0; f < waves.size(1); ++f) counts.push_back(count_of(f, width));
  const at::Tensor counted = waves * at::tensor(counts, waves.options()).unsqueeze(1);
  const at::Tensor both = at::stack({at::real(inverse), -at::imag(inverse)}).transpose(2, 3).flatten(2);
  return at::matmul(both.transpose(1, 2), counted).sum(0).view(weight.sizes()).to(weight.scalar_type());
}

struct SpectralLogDet : torch::autograd::Function<SpectralLogDet> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight, const at::Tensor& waves,
                            int64_t width) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [value, slope] = examine(weight, waves, width, true);
    context->save_for_backward({weight, waves, slope});
    context->saved_data["width"] = width;
    return value;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const bool further = at::GradMode::is_enabled();
    const at::Tensor slope = further ? plain_slope(saved[0], saved[1], context->saved_data["width"].toInt()) : saved[2];
    return {slope * gradients[0], {}, {}};
  }
};

at::Tensor with_gradient(const at::Tensor& weight, const at::Tensor& waves, int64_t width) {
  if (at::GradMode::is_enabled() && weight.requires_grad()) return SpectralLogDet::apply(weight, waves, width);
  return spectral_log_det(weight, waves, width);
}

}  // namespace

TORCH_LIBRARY_IMPL(invertbench, AutogradCPU, m) { m.impl("spectral_log_det", TORCH_FN(with_gradient)); }

}  // namespace invertbench::spectrum
