// The derivatives of `invertbench::spectral_log_det`. Those of its gradient are those of PyTorch's operators.

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/linalg_inv_ex.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/real.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <vector>

#include "convolution/spectrum.h"
#include "dispatch.h"

namespace invertbench::spectrum {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

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
