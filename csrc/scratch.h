// Temporary memory of a kernel, in whole vectors.
#pragma once

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace invertbench {

// `count` rounded up to a multiple of `lanes`.
inline int64_t rounded(int64_t count, int64_t lanes) { return (count + lanes - 1) / lanes * lanes; }

// Numbers on boundaries of cache lines, for as long as the object lives, from torch's allocator, which measures memory.
template <class T>
class Scratch {
 public:
  T* numbers(int64_t count) {
    held_.push_back(c10::GetCPUAllocator()->allocate(std::max<int64_t>(count, 1) * sizeof(T)));
    return static_cast<T*>(held_.back().get());
  }

  T* zeros(int64_t count) {
    T* const data = numbers(count);
    std::fill(data, data + count, T(0));
    return data;
  }

 private:
  std::vector<c10::DataPtr> held_;
};

}  // namespace invertbench
