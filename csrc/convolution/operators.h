// The operators of this folder, for their derivatives.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>

// A convolution of events that repeat at their borders, and the gradient of its weight, on a processor.
namespace invertbench::circular {

at::Tensor circular(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                    int64_t before);

at::Tensor circular_weight(const at::Tensor& x, const at::Tensor& of_y, at::IntArrayRef sizes, int64_t before);

}  // namespace invertbench::circular

// The solve of a convolution whose windows lie in the rows above a pixel, on a processor.
namespace invertbench::solving {

at::Tensor solve_rows(const at::Tensor& y, const at::Tensor& weight);

}  // namespace invertbench::solving

// The log-determinant of a circular convolution from its spectrum, on a processor.
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
