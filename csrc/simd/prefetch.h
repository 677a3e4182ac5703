// Requests to memory ahead of use.
#pragma once

#include <cstdint>

#include "simd/cpu.h"

namespace invertbench {

// Request numbers that are read later. A core keeps about twenty requests: more at once wait for one another.
// Always inline: a compiler would remove calls of a function that has no result and changes nothing.
template <class T>
INVERTBENCH_INLINE void prefetch(const T* values, int64_t count) {
  for (int64_t i = 0; i < count; i += 64 / int64_t(sizeof(T))) __builtin_prefetch(values + i);
}

}  // namespace invertbench
