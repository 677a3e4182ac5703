// A convolution of events that repeat at their borders, and the gradient of its weight, on a processor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace invertbench::circular {

at::Tensor circular(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                    int64_t before);

at::Tensor circular_weight(const at::Tensor& x, const at::Tensor& of_y, at::IntArrayRef sizes, int64_t before);

}  // namespace invertbench::circular
