// An Emerging convolution and its inverse on the processor, emerging/cpu/kernels.cpp.
#pragma once

#include "emerging/cpu/problem.h"

namespace invertbench::emerging {

// Apply both convolutions to a batch that is not empty.
template <typename T>
void apply(const Problem<T>& problem);

// Invert both convolutions of a batch that is not empty.
template <typename T>
void invert(const Problem<T>& problem);

// n times the sum of the logarithms of both diagonals.
template <typename T>
double log_det_of(const Problem<T>& problem);

}  // namespace invertbench::emerging
