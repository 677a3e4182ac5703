// The butterfly on the processor: the same source compiled for each instruction set.

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "butterfly/cpu/kernels.h"
#include "simd/cpu.h"

namespace invertbench::portable {
#define INVERTBENCH_BYTES 16
#include "simd/simd.h"
#include "butterfly/cpu/weights.h"
#include "butterfly/cpu/example_lanes/tile.h"
#include "butterfly/cpu/example_lanes/run.h"
#include "butterfly/cpu/entry_lanes/lanes.h"
#include "butterfly/cpu/entry_lanes/lanes_backward.h"
#include "butterfly/cpu/table.h"
#undef INVERTBENCH_BYTES
}  // namespace invertbench::portable

#if defined(__x86_64__)
INVERTBENCH_TARGET(INVERTBENCH_AVX2)
namespace invertbench::avx2 {
#define INVERTBENCH_BYTES 32
#include "simd/simd.h"
#include "butterfly/cpu/weights.h"
#include "butterfly/cpu/example_lanes/tile.h"
#include "butterfly/cpu/example_lanes/run.h"
#include "butterfly/cpu/entry_lanes/lanes.h"
#include "butterfly/cpu/entry_lanes/lanes_backward.h"
#include "butterfly/cpu/table.h"
#undef INVERTBENCH_BYTES
}  // namespace invertbench::avx2
INVERTBENCH_TARGET_END

INVERTBENCH_TARGET(INVERTBENCH_AVX512)
namespace invertbench::avx512 {
#define INVERTBENCH_BYTES 64
#include "simd/simd.h"
#include "butterfly/cpu/weights.h"
#include "butterfly/cpu/example_lanes/tile.h"
#include "butterfly/cpu/example_lanes/run.h"
#include "butterfly/cpu/entry_lanes/lanes.h"
#include "butterfly/cpu/entry_lanes/lanes_backward.h"
#include "butterfly/cpu/table.h"
#undef INVERTBENCH_BYTES
}  // namespace invertbench::avx512
INVERTBENCH_TARGET_END
#endif

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
