// The butterfly on the processor: the same source compiled for each instruction set.

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "butterfly/cpu/kernels.h"

#define INVERTBENCH_BODY "butterfly/cpu/body.h"
#include "simd/each.h"

namespace invertbench {

template <class T>
const ButterflyKernels<T>& butterfly_kernels() {
#if defined(__x86_64__)
  if (instructions() == Instructions::avx512) return avx512::kernels<T>();
  if (instructions() == Instructions::avx2) return avx2::kernels<T>();
#endif
  return portable::kernels<T>();
}

template const ButterflyKernels<float>& butterfly_kernels<float>();
template const ButterflyKernels<double>& butterfly_kernels<double>();

}  // namespace invertbench
