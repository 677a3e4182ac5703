// The operators of this folder, for their derivatives.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/accumulate.h>

#include <cstdint>
#include <tuple>

namespace invertbench {

// Places of an event (N, C, *spatial): the numbers of a channel.
inline int64_t places_of(const at::Tensor& x) { return c10::multiply_integers(x.sizes().slice(2)); }

}  // namespace invertbench

// One matrix applied to the channels of every place, on a processor.
namespace invertbench::mixing {

// (N, C, *spatial) -> (N, C', *spatial), by a matrix (C', C).
at::Tensor mix(const at::Tensor& x, const at::Tensor& weight);

// The gradients of x and of the matrix.
std::tuple<at::Tensor, at::Tensor> mix_backward(const at::Tensor& of_y, const at::Tensor& x, const at::Tensor& weight);

}  // namespace invertbench::mixing

// A scale and a shift of every channel, on a processor.
namespace invertbench::scales {

// y, and the log-determinant of an event.
std::tuple<at::Tensor, at::Tensor> actnorm(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& log_scale);

// The gradients of x, shift and log_scale.
std::tuple<at::Tensor, at::Tensor, at::Tensor> actnorm_backward(const at::Tensor& of_y, const at::Tensor& of_log_det,
                                                                const at::Tensor& x, const at::Tensor& shift,
                                                                const at::Tensor& log_scale);

}  // namespace invertbench::scales

// The weight of a 1x1 convolution of few channels, on a processor.
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
