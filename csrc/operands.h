// What operators on a processor have in common: events whose entries are contiguous, in single or double precision.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <vector>

#include "simd/cpu.h"
#include "thread_memory.h"

namespace invertbench {

// Events (N, channels, *spatial), each contiguous, at any distance from one another.
inline at::Tensor rows(const at::Tensor& x) {
  return x.size(0) == 0 || x.select(0, 0).is_contiguous() ? x : x.contiguous();
}

template <class T>
struct Rows {
  explicit Rows(const at::Tensor& x) : data(x.const_data_ptr<T>()), stride(x.stride(0)) {}
  const T* operator[](int64_t event) const { return data + event * stride; }
  const T* data;
  int64_t stride;
};

// Numbers of an event.
inline int64_t size_of(const at::Tensor& x) { return x.size(0) == 0 ? 0 : x.numel() / x.size(0); }

// Events for which another thread is worth its start, of which each takes `work` of `worth_a_thread`.
inline int64_t grain(int64_t work, int64_t worth_a_thread) {
  return worth_a_thread / std::max<int64_t>(work, 1) + 1;
}

// Call run(zero) with a zero of x's precision, which the other operands must have.
template <class Run>
void in_precision(const char* name, const at::Tensor& x, at::TensorList others, const Run& run) {
  bool alike = x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble;
  for (const at::Tensor& other : others) alike = alike && other.scalar_type() == x.scalar_type();
  TORCH_CHECK_TYPE(alike, name, ": x is ", x.scalar_type(), "; all operands must be float32, or all float64");
  x.scalar_type() == at::kFloat ? run(0.0F) : run(0.0);
}

}  // namespace invertbench
