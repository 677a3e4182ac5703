// The weight of a 1x1 convolution of few channels, on a processor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

namespace invertbench::factors {

using Pair = std::tuple<at::Tensor, at::Tensor>;
using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Factor = const at::Tensor&;

// W and n log|det W|.
Pair plu(Factor lower, Factor upper, Factor log_s, Factor sign, Factor permutation, int64_t positions);

// The gradients of L, U and log_s.
Triple plu_backward(Factor of_weight, Factor of_log_det, Factor lower, Factor upper, Factor log_s, Factor sign,
                    Factor permutation, int64_t positions);

// n log|det|, and with `keep` its gradient, n times the transpose of the inverse.
Pair eliminated(const at::Tensor& matrix, int64_t positions, bool keep);

at::Tensor log_abs_det(const at::Tensor& matrix, int64_t positions);

}  // namespace invertbench::factors
