// Affine maps of rows of numbers and their gradients, each in one pass over memory.
//
// Included by simd/each.h, in the namespace of an instruction set: no include guard.

#include "simd/exp.h"

#include "affine/gates.h"

template <class T>
struct Whole {
  static INVERTBENCH_INLINE V<T> load(const T* from) { return *reinterpret_cast<const V<T>*>(from); }
  static INVERTBENCH_INLINE void store(T* to, V<T> value) { *reinterpret_cast<V<T>*>(to) = value; }
  static INVERTBENCH_INLINE V<T> only(V<T> value) { return value; }
};

// The first `size` lanes; the others are zero.
template <class T>
struct Part {
  int64_t size;
  V<T> load(const T* from) const {
    V<T> value{};
    std::memcpy(&value, from, size_t(size) * sizeof(T));
    return value;
  }
  void store(T* to, V<T> value) const { std::memcpy(to, &value, size_t(size) * sizeof(T)); }
  V<T> only(V<T> value) const { return load(reinterpret_cast<const T*>(&value)); }
};

// Call each(i, memory) for the vectors that begin at number i of a row; `memory` loads and stores them.
template <class T, class Each>
INVERTBENCH_INLINE void over(int64_t begin, int64_t end, const Each& each) {
  int64_t i = begin;
  for (; i + LANES<T> <= end; i += LANES<T>) each(i, Whole<T>{});
  if (i < end) each(i, Part<T>{end - i});
}

// Numbers whose sum is taken in their own precision, few to a lane, before it is added to others in double precision.
template <class T>
constexpr int64_t RUN = 16 * LANES<T>;

// y = x scale(s) + shift. Returns the sum of the log-scales.
template <class Gate, class T>
double forward_entries(int64_t count, const T* x, const T* s, const T* shift, T* y) {
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += RUN<T>) {
    V<T> sum{};
    over<T>(begin, std::min(begin + RUN<T>, count), [&](int64_t i, auto memory) {
      const Scale<T> scale = Gate::template at<T>(memory.load(s + i));
      sum += memory.only(scale.log);
      memory.store(y + i, memory.load(x + i) * scale.value + memory.load(shift + i));
    });
    total += sum_of_lanes<T>(sum);
  }
  return total;
}

// The gradients of x and of s, from those of y and of the sum.
template <class Gate, class T>
void backward_entries(int64_t count, const T* of_y, T of_sum, const T* x, const T* s, T* of_x, T* of_s) {
  over<T>(0, count, [&](int64_t i, auto memory) {
    const Scale<T> scale = Gate::template at<T>(memory.load(s + i));
    const V<T> scaled = memory.load(of_y + i) * scale.value;
    memory.store(of_x + i, scaled);
    memory.store(of_s + i, (scaled * memory.load(x + i) + of_sum) * scale.slope);
  });
}

// By the number of a gate.
template <class T>
constexpr decltype(&forward_entries<Exponential, T>) FORWARD[] = {
    forward_entries<Exponential, T>, forward_entries<Sigmoid, T>, forward_entries<Bounded, T>};
template <class T>
constexpr decltype(&backward_entries<Exponential, T>) BACKWARD[] = {
    backward_entries<Exponential, T>, backward_entries<Sigmoid, T>, backward_entries<Bounded, T>};

// y = (x + shift) scale.
template <class T>
void forward_channel(int64_t count, const T* x, T shift, T scale, T* y) {
  over<T>(0, count, [&](int64_t i, auto memory) { memory.store(y + i, (memory.load(x + i) + shift) * scale); });
}

// The gradient of x from that of y; adds its sum to `of_shift`, and the sum of of_x (x + shift) to `of_log_scale`.
template <class T>
void backward_channel(int64_t count, const T* of_y, const T* x, T shift, T scale, T* of_x, double& of_shift,
                      double& of_log_scale) {
  for (int64_t begin = 0; begin < count; begin += RUN<T>) {
    V<T> sum{}, product{};
    over<T>(begin, std::min(begin + RUN<T>, count), [&](int64_t i, auto memory) {
      const V<T> gradient = memory.load(of_y + i) * scale;
      memory.store(of_x + i, gradient);
      sum += gradient;
      product += gradient * (memory.load(x + i) + shift);
    });
    of_shift += sum_of_lanes<T>(sum);
    of_log_scale += sum_of_lanes<T>(product);
  }
}
