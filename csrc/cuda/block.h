// The interface of kernel bodies, so that the same source runs on a device and, thread by thread, on a processor.
//
// A body is a sequence of steps, `block.step(f)`: every thread of a block runs f(thread, state), then all synchronise
// at a barrier. `state` holds a thread's registers between steps. Data that threads exchange are in the
// block's shared memory, requested by `block.shared<T>(offset)`. Global memory is read and written by `block.load`,
// `block.store` and `block.copy`, which may return before it is complete: until `block.arrived<n>()`, where n
// is how many of the last `block.commit()`s may be incomplete. tests/layers has the block for the processor.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define INVERTBENCH_DEVICE __device__ __forceinline__
#define INVERTBENCH_UNROLLED _Pragma("unroll")
#define INVERTBENCH_ROLLED _Pragma("unroll 1")
#define INVERTBENCH_BY_EIGHT _Pragma("unroll 8")
#else
#define INVERTBENCH_DEVICE inline
#define INVERTBENCH_UNROLLED
#define INVERTBENCH_ROLLED
#define INVERTBENCH_BY_EIGHT
#endif

namespace invertbench {

struct Nothing {};

// The upper half of a float32 number: bfloat16, rounded to the nearest, ties to even.
struct BFloat16 {
  uint16_t bits;
};

INVERTBENCH_DEVICE float widened(BFloat16 x) {
  union {
    uint32_t bits;
    float value;
  } both;
  both.bits = uint32_t(x.bits) << 16;
  return both.value;
}

INVERTBENCH_DEVICE BFloat16 rounded(float x) {
  union {
    float value;
    uint32_t bits;
  } both;
  both.value = x;
  if (x != x) return {uint16_t(both.bits >> 16 | 64)};
  return {uint16_t((both.bits + 0x7fff + (both.bits >> 16 & 1)) >> 16)};
}

// Division of a number below 2^31 by one that is known before the launch: a multiplication and a shift.
struct Divisor {
  uint32_t divisor = 1, factor = 1;
  int shift = 0;

  Divisor() = default;
  explicit Divisor(int64_t by) : divisor(uint32_t(by)) {
    while ((uint64_t(1) << shift) < divisor) ++shift;
    factor = uint32_t(((uint64_t(1) << 32) * ((uint64_t(1) << shift) - divisor)) / divisor + 1);
  }
  INVERTBENCH_DEVICE int divide(int number) const {
    return int((uint32_t(uint64_t(uint32_t(number)) * factor >> 32) + uint32_t(number)) >> shift);
  }
};

#if defined(__CUDACC__)

extern __shared__ __align__(16) unsigned char shared_memory[];

template <class State>
struct DeviceBlock {
  State state;

  INVERTBENCH_DEVICE int threads() const { return int(blockDim.x); }

  template <class T>
  INVERTBENCH_DEVICE T* shared(int offset) const {
    return reinterpret_cast<T*>(shared_memory + offset);
  }

  template <class Step>
  INVERTBENCH_DEVICE void step(const Step& f) {
    f(int(threadIdx.x), state);
    __syncthreads();
  }

  template <class T>
  INVERTBENCH_DEVICE T load(const T* from) const {
    return *from;
  }
  template <class T>
  INVERTBENCH_DEVICE void store(T* to, T value) const {
    *to = value;
  }
  template <class T>
  INVERTBENCH_DEVICE void copy(T* shared, int place, const T* from) const {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    const uint32_t address = uint32_t(__cvta_generic_to_shared(shared + place));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from), "n"(sizeof(T)) : "memory");
  }
  INVERTBENCH_DEVICE void commit() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int N>
  INVERTBENCH_DEVICE void arrived() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
  }
};

#endif

}  // namespace invertbench
