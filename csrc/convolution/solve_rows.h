// The solve of a convolution whose windows lie in the rows above a pixel, on a processor.
#pragma once

#include <ATen/core/Tensor.h>

namespace invertbench::solving {

at::Tensor solve_rows(const at::Tensor& y, const at::Tensor& weight);

}  // namespace invertbench::solving
