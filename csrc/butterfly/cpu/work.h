// Memory and threads for the butterfly on the processor.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>

#include "butterfly/plan.h"

namespace invertbench {

constexpr double NANOSECONDS = 0.1;     // rough time for one entry of one sample and one factor
constexpr double WORTH_A_THREAD = 1e5;  // nanoseconds of work that justify another thread
constexpr int64_t ALIGNMENT = 64;

template <class T>
at::Tensor aligned(int64_t size, const at::Tensor& like, T*& begin) {
  at::Tensor memory = at::empty({int64_t(size * sizeof(T) + ALIGNMENT)}, like.options().dtype(at::kByte));
  const auto address = reinterpret_cast<uintptr_t>(memory.mutable_data_ptr());
  begin = reinterpret_cast<T*>((address + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  return memory;
}

// Return the least number of `count` equal tasks, of so many nanoseconds together, for one thread.
inline int64_t grain(int64_t count, double nanoseconds) {
  return std::max<int64_t>(1, int64_t(WORTH_A_THREAD / std::max(nanoseconds, 1.0) * double(count)));
}

// Of a batch forward, on one thread.
inline double nanoseconds_of(const Butterfly& butterfly, int64_t batch) {
  size_t factors = 1;
  for (const Part& part : butterfly.parts) factors = std::max(factors, part.factors.size() + 1);
  return double(batch * butterfly.dim * int64_t(factors)) * NANOSECONDS;
}

}  // namespace invertbench
