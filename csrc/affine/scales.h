// A scale and a shift of every channel, on a processor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

namespace invertbench::scales {

// y, and the log-determinant of an event.
std::tuple<at::Tensor, at::Tensor> actnorm(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& log_scale);

// The gradients of x, shift and log_scale.
std::tuple<at::Tensor, at::Tensor, at::Tensor> actnorm_backward(const at::Tensor& of_y, const at::Tensor& of_log_det,
                                                                const at::Tensor& x, const at::Tensor& shift,
                                                                const at::Tensor& log_scale);

// Numbers of a channel of an event.
inline int64_t positions(const at::Tensor& x) {
  int64_t count = 1;
  for (const int64_t size : x.sizes().slice(2)) count *= size;
  return count;
}

}  // namespace invertbench::scales
