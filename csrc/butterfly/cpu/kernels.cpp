// The butterfly on the processor.

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#include "butterfly/cpu/kernels.h"
#include "simd/cpu.h"

namespace invertbench {

#define INVERTBENCH_BODY "butterfly/cpu/body.h"
#include "simd/each.h"

template <class T>
const ButterflyKernels<T>& butterfly_kernels() {
  return INVERTBENCH_BEST(kernels<T>)();
}

template const ButterflyKernels<float>& butterfly_kernels<float>();
template const ButterflyKernels<double>& butterfly_kernels<double>();

}  // namespace invertbench
