// Compile the header INVERTBENCH_BODY, which has no include guard, once for each instruction set, in namespaces
// invertbench::portable, ::avx2 and ::avx512, with vectors of INVERTBENCH_BYTES bytes. Beforehand:
//   #define INVERTBENCH_BODY "folder/body.h"
#include "simd/cpu.h"

namespace invertbench::portable {
#define INVERTBENCH_BYTES 16
#include INVERTBENCH_BODY
#undef INVERTBENCH_BYTES
}  // namespace invertbench::portable

#if defined(__x86_64__)
INVERTBENCH_TARGET(INVERTBENCH_AVX2)
namespace invertbench::avx2 {
#define INVERTBENCH_BYTES 32
#include INVERTBENCH_BODY
#undef INVERTBENCH_BYTES
}  // namespace invertbench::avx2
INVERTBENCH_TARGET_END

INVERTBENCH_TARGET(INVERTBENCH_AVX512)
namespace invertbench::avx512 {
#define INVERTBENCH_BYTES 64
#include INVERTBENCH_BODY
#undef INVERTBENCH_BYTES
}  // namespace invertbench::avx512
INVERTBENCH_TARGET_END
#endif
