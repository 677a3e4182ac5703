// Temporary memory of a kernel, in whole vectors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace invertbench {

// `count` rounded up to a multiple of `lanes`.
inline int64_t rounded(int64_t count, int64_t lanes) { return (count + lanes - 1) / lanes * lanes; }

// Numbers on boundaries of cache lines, for as long as the object lives.
template <class T>
class Scratch {
 public:
  T* numbers(int64_t count) {
    T* const data = static_cast<T*>(::operator new[](std::max<int64_t>(count, 1) * sizeof(T), std::align_val_t(64)));
    held_.emplace_back(data);
    return data;
  }

  T* zeros(int64_t count) {
    T* const data = numbers(count);
    std::fill(data, data + count, T(0));
    return data;
  }

 private:
  struct Free {
    void operator()(T* data) const { ::operator delete[](data, std::align_val_t(64)); }
  };
  std::vector<std::unique_ptr<T, Free>> held_;
};

}  // namespace invertbench
