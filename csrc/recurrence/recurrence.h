// A linear recurrence over the positions of sequences, on a processor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

namespace invertbench::recurrence {

std::tuple<at::Tensor, at::Tensor> recurrence(const at::Tensor& x, const at::Tensor& system, int64_t states,
                                              bool backwards);

}  // namespace invertbench::recurrence
