// Temporary memory of the threads of a parallel region.
#pragma once

#include <ATen/Parallel.h>

#include <cstdint>

#include "scratch.h"

namespace invertbench {

// `count` numbers for each thread, in one block, which the allocator can reuse next time: allocations by threads would
// be returned. A processor prefetches some KB beyond what a thread reads, and would take the lines that the next thread
// has just written: so much lies between them.
template <class T>
class ThreadMemory {
 public:
  // Within a parallel region another one would run on the calling thread alone.
  ThreadMemory(int64_t count, int64_t threads, bool zeros = false)
      : pitch_(threads == 1 || at::in_parallel_region() ? 0 : rounded(count + PREFETCHED / int64_t(sizeof(T)), 64)) {
    const int64_t all = count + (threads - 1) * pitch_;
    begin_ = zeros ? scratch_.zeros(all) : scratch_.numbers(all);
  }

  T* own() const { return begin_ + at::get_thread_num() * pitch_; }

 private:
  static constexpr int64_t PREFETCHED = 16 << 10;  // bytes
  int64_t pitch_;
  Scratch<T> scratch_;
  T* begin_;
};

}  // namespace invertbench
