// Check the arguments of `invertbench::emerging` and `invertbench::emerging_inverse`, whose events are `y`, equally for
// execution and for shapes without data.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace invertbench {

inline void check_emerging_operands(const char* operation, const at::Tensor& y, const at::Tensor& weight1,
                                    const at::Tensor& weight2, const std::optional<at::Tensor>& bias) {
  TORCH_CHECK_VALUE(y.dim() == 3 || y.dim() == 4, operation, ": y of shape ", y.sym_sizes(),
                    " is not a batch of events; expected (N, C, L) or (N, C, H, W)");
  TORCH_CHECK_TYPE(y.scalar_type() == at::kFloat || y.scalar_type() == at::kDouble, operation, ": y is ",
                   y.scalar_type(), "; use float32 or float64");
  const auto like_y = [&](const at::Tensor& other, const char* name) {
    TORCH_CHECK_TYPE(other.scalar_type() == y.scalar_type() && other.device() == y.device(), operation, ": ", name,
                     " is ", other.scalar_type(), " on ", other.device(), " and y ", y.scalar_type(), " on ",
                     y.device(), "; they must be alike");
  };
  for (const auto& [weight, name] : {std::pair{&weight1, "weight1"}, std::pair{&weight2, "weight2"}}) {
    like_y(*weight, name);
    bool fits = weight->dim() == y.dim();
    fits = fits && weight->sym_size(0) == y.sym_size(1) && weight->sym_size(1) == y.sym_size(1);
    for (int64_t axis = 2; fits && axis < y.dim(); ++axis) {
      fits = weight->sym_size(axis) % 2 == 1 && weight->sym_size(axis) == weight1.sym_size(axis);
    }
    TORCH_CHECK_VALUE(fits, operation, ": ", name, " of shape ", weight->sym_sizes(), " does not fit y of shape ",
                      y.sym_sizes(), "; expected (C, C, k) or (C, C, k, l), odd k and l, the same for both weights");
  }
  if (bias.has_value()) {
    like_y(*bias, "bias");
    TORCH_CHECK_VALUE(bias->dim() == 1 && bias->sym_size(0) == y.sym_size(1), operation, ": bias of shape ",
                      bias->sym_sizes(), " does not fit y of shape ", y.sym_sizes(), "; expected (C,)");
  }
}

}  // namespace invertbench
