// Check the arguments of the butterfly's operators, and convert them for the kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include "butterfly/plan.h"
#include "butterfly/cpu/entry_lanes/stages.h"

namespace invertbench {

inline Butterfly butterfly_of(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef plan,
                              at::IntArrayRef layout, bool shared) {
  TORCH_CHECK(x.dim() >= 1 && x.scalar_type() == weight.scalar_type() &&
                  (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble),
              "butterfly: a batch of ", x.scalar_type(), " with a weight of ", weight.scalar_type(),
              "; both must be float32, or both float64");
  Butterfly found = parse_butterfly(plan.data(), plan.size(), shared);
  TORCH_CHECK(c10::multiply_integers(x.sizes().slice(1)) == found.dim, "butterfly: events of shape ",
              x.sizes().slice(1), " for a plan of ", found.dim, " entries");
  TORCH_CHECK(weight.sizes() == at::IntArrayRef({2, 2, found.matrices}), "butterfly: a weight of shape ",
              weight.sizes(), " for a plan of ", found.matrices, " matrices; expected (2, 2, ", found.matrices, ")");
  TORCH_CHECK(layout.empty() || (layout.size() == 3 && c10::multiply_integers(layout) == found.dim),
              "butterfly: layout ", layout, " is not [J, S, n] with a product of ", found.dim);
  return found;
}

inline Layout layout_of(at::IntArrayRef sizes) {
  return sizes.empty() ? Layout{} : Layout{sizes[0], sizes[1], sizes[2]};
}

}  // namespace invertbench
