// The instruction set that kernels are compiled for. The build (layers/kernels/build.py) defines INVERTBENCH_FOR_AVX512
// or INVERTBENCH_FOR_AVX2, or neither: vectors of 16 bytes, which every processor has. A library has the kernels of one
// set: those of all would take three times as long to compile.
//
// A kernel body is written once, in terms of vectors of INVERTBENCH_BYTES bytes, and compiled by simd/each.h.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define INVERTBENCH_TEXT(x) _Pragma(#x)
#if defined(__clang__)
#define INVERTBENCH_TARGET(names) \
  INVERTBENCH_TEXT(clang attribute push(__attribute__((target(names))), apply_to = function))
#define INVERTBENCH_TARGET_END _Pragma("clang attribute pop")
#elif defined(__GNUC__)
#define INVERTBENCH_TARGET(names) _Pragma("GCC push_options") INVERTBENCH_TEXT(GCC target(names))
#define INVERTBENCH_TARGET_END _Pragma("GCC pop_options")
#endif

#define INVERTBENCH_INLINE inline __attribute__((always_inline))

#define INVERTBENCH_AVX2 "avx2,fma"
#define INVERTBENCH_AVX512 "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,prefer-vector-width=512"

#if defined(INVERTBENCH_FOR_AVX512)
#define INVERTBENCH_SET avx512
#define INVERTBENCH_WIDTH 64
#elif defined(INVERTBENCH_FOR_AVX2)
#define INVERTBENCH_SET avx2
#define INVERTBENCH_WIDTH 32
#else
#define INVERTBENCH_SET portable
#define INVERTBENCH_WIDTH 16
#endif

// Name a function or constant of a body (simd/each.h).
#define INVERTBENCH_BEST(...) INVERTBENCH_SET::__VA_ARGS__

namespace invertbench {

// Numbers in a vector.
template <class T>
constexpr int64_t WIDTH_OF = INVERTBENCH_WIDTH / int64_t(sizeof(T));

}  // namespace invertbench
