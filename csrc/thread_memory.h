// Temporary memory of the threads of a parallel region.
#pragma once

#include <ATen/Parallel.h>

#include <cstdint>

#include "scratch.h"

namespace invertbench {

// Numbers from the first of `count` that one thread uses to the first of the next thread's. A processor prefetches some
// KB beyond what a thread reads, and would take the lines that the next thread has just written.
template <class T>
int64_t apart(int64_t count) {
  constexpr int64_t prefetched = 16 << 10;
  return rounded(count + prefetched / int64_t(sizeof(T)), 64);
}

// `count` numbers for each thread, in one block, which the allocator can reuse next time: allocations by threads would
// be returned.
template <class T>
class ThreadMemory {
 public:
  ThreadMemory(int64_t count, int64_t threads, bool zeros = false) : pitch_(threads == 1 ? 0 : apart<T>(count)) {
    const int64_t all = count + (threads - 1) * pitch_;
    begin_ = zeros ? scratch_.zeros(all) : scratch_.numbers(all);
  }

  T* own() const { return begin_ + at::get_thread_num() * pitch_; }

 private:
  int64_t pitch_;
  Scratch<T> scratch_;
  T* begin_;
};

}  // namespace invertbench
