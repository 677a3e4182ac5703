// Affine maps of rows of numbers and their gradients, each in one pass over memory.
//
// Included once for each instruction set, in a separate namespace: no include guard.

#include "simd/exp.h"

template <class T>
struct Whole {
  static INVERTBENCH_INLINE V<T> load(const T* from) { return *reinterpret_cast<const V<T>*>(from); }
  static INVERTBENCH_INLINE void store(T* to, V<T> value) { *reinterpret_cast<V<T>*>(to) = value; }
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

// y = x exp(log_scale) + shift. Returns the sum of log_scale.
template <class T>
double forward_entries(int64_t count, const T* x, const T* log_scale, const T* shift, T* y) {
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += RUN<T>) {
    V<T> sum{};
    over<T>(begin, std::min(begin + RUN<T>, count), [&](int64_t i, auto memory) {
      const V<T> s = memory.load(log_scale + i);
      sum += s;
      memory.store(y + i, memory.load(x + i) * exp_of<T>(s) + memory.load(shift + i));
    });
    total += sum_of_lanes<T>(sum);
  }
  return total;
}

// The gradients of x and of log_scale, from those of y and of the sum.
template <class T>
void backward_entries(int64_t count, const T* of_y, T of_sum, const T* x, const T* log_scale, T* of_x,
                      T* of_log_scale) {
  over<T>(0, count, [&](int64_t i, auto memory) {
    const V<T> scaled = memory.load(of_y + i) * exp_of<T>(memory.load(log_scale + i));
    memory.store(of_x + i, scaled);
    memory.store(of_log_scale + i, scaled * memory.load(x + i) + of_sum);
  });
}

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
