// Compile the header INVERTBENCH_BODY, which has no include guard, for the instruction set of this build, in a
// namespace of its name: portable, avx2 or avx512. Included after simd/cpu.h, in the namespace of the code that uses
// the body, as other bodies may be in the same translation unit. Beforehand:
//   #define INVERTBENCH_BODY "folder/body.h"
// and, to have the body for half a vector as well, #define INVERTBENCH_HALF: that is avx2 where the set is AVX-512.
#if defined(INVERTBENCH_FOR_AVX512)
INVERTBENCH_TARGET(INVERTBENCH_AVX512)
namespace avx512 {
#define INVERTBENCH_BYTES 64
#include INVERTBENCH_BODY
#undef INVERTBENCH_BYTES
}  // namespace avx512
INVERTBENCH_TARGET_END
#endif

#if defined(INVERTBENCH_FOR_AVX2) || (defined(INVERTBENCH_FOR_AVX512) && defined(INVERTBENCH_HALF))
INVERTBENCH_TARGET(INVERTBENCH_AVX2)
namespace avx2 {
#define INVERTBENCH_BYTES 32
#include INVERTBENCH_BODY
#undef INVERTBENCH_BYTES
}  // namespace avx2
INVERTBENCH_TARGET_END
#endif

#if !defined(INVERTBENCH_FOR_AVX512) && !defined(INVERTBENCH_FOR_AVX2)
namespace portable {
#define INVERTBENCH_BYTES 16
#include INVERTBENCH_BODY
#undef INVERTBENCH_BYTES
}  // namespace portable
#endif

#undef INVERTBENCH_BODY
#undef INVERTBENCH_HALF
