// The instruction set of the processor, queried once at run time: the same build serves every machine.
// ATEN_CPU_CAPABILITY, torch's own variable, limits the kernels as it limits torch: to `default` or `avx2`.
//
// A kernel body is written once, in terms of vectors of INVERTBENCH_BYTES bytes, and compiled for each kind by
// simd/each.h; the caller selects by INVERTBENCH_BEST.
#pragma once

#include <cstdlib>
#include <string_view>

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

namespace invertbench {

enum class Instructions { portable, avx2, avx512 };

inline Instructions instructions() {
#if defined(__x86_64__)
  static const Instructions found = [] {
    __builtin_cpu_init();
    const char* const capability = std::getenv("ATEN_CPU_CAPABILITY");
    const std::string_view asked = capability == nullptr ? "" : capability;
    if (asked == "default" || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
      return Instructions::portable;
    }
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
    return wide && asked != "avx2" ? Instructions::avx512 : Instructions::avx2;
  }();
  return found;
#else
  return Instructions::portable;
#endif
}

// Name a function or constant of a body (simd/each.h) as compiled for this processor's instructions.
#if defined(__x86_64__)
#define INVERTBENCH_BEST(...)                                   \
  (instructions() == Instructions::avx512 ? avx512::__VA_ARGS__ \
   : instructions() == Instructions::avx2 ? avx2::__VA_ARGS__   \
                                          : portable::__VA_ARGS__)
#else
#define INVERTBENCH_BEST(...) portable::__VA_ARGS__
#endif

inline const char* name(Instructions found) {
  switch (found) {
    case Instructions::avx512: return "avx512";
    case Instructions::avx2: return "avx2";
    default: return "portable";
  }
}

}  // namespace invertbench
