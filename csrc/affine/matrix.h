// One matrix applied to the channels of every place, on a processor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

namespace invertbench::mixing {

// (N, C, *spatial) -> (N, C', *spatial), by a matrix (C', C).
at::Tensor mix(const at::Tensor& x, const at::Tensor& weight);

// The gradients of x and of the matrix.
std::tuple<at::Tensor, at::Tensor> mix_backward(const at::Tensor& of_y, const at::Tensor& x, const at::Tensor& weight);

}  // namespace invertbench::mixing
