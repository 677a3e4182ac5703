// The work of a butterfly on the processor, and the threads that it is worth.
#pragma once

#include <algorithm>
#include <cstdint>

#include "butterfly/plan.h"

namespace invertbench {

constexpr double NANOSECONDS = 0.1;     // rough time for one entry of one sample and one factor
constexpr double WORTH_A_THREAD = 1e5;  // nanoseconds of work that justify another thread

// Return the least number of `count` equal tasks, of so many nanoseconds together, for one thread.
inline int64_t least_tasks(int64_t count, double nanoseconds) {
  return std::max<int64_t>(1, int64_t(WORTH_A_THREAD / std::max(nanoseconds, 1.0) * double(count)));
}

// Of a batch forward, on one thread.
inline double nanoseconds_of(const Butterfly& butterfly, int64_t batch) {
  size_t factors = 1;
  for (const Part& part : butterfly.parts) factors = std::max(factors, part.factors.size() + 1);
  return double(batch * butterfly.dim * int64_t(factors)) * NANOSECONDS;
}

}  // namespace invertbench
