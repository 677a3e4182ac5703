// The log-determinant of a circular convolution from its spectrum, on a processor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

namespace invertbench::spectrum {

// The value and, with `keep`, its gradient, as the weight.
std::tuple<at::Tensor, at::Tensor> examine(const at::Tensor& weight, const at::Tensor& waves, int64_t width, bool keep);

at::Tensor spectral_log_det(const at::Tensor& weight, const at::Tensor& waves, int64_t width);

// How often frequency number f counts, of rows of width / 2 + 1.
inline double count_of(int64_t f, int64_t width) {
  const int64_t column = f % (width / 2 + 1);
  return column == 0 || 2 * column == width ? 1 : 2;
}

}  // namespace invertbench::spectrum
