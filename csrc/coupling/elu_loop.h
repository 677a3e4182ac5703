// The ELU of `count` numbers: x where x >= 0, else exp x - 1.
//
// Included once for each instruction set, in a separate namespace, with INVERTBENCH_BYTES: no include guard.

#include "simd/expm1.h"

template <class T>
INVERTBENCH_INLINE V<T> elu_of(V<T> x) {
  return x < T(0) ? expm1_of<T>(x) : x;
}

template <class T>
void elu_loop(const T* x, T* y, int64_t count) {
  int64_t i = 0;
  for (; i + LANES<T> <= count; i += LANES<T>) {
    *reinterpret_cast<V<T>*>(y + i) = elu_of<T>(*reinterpret_cast<const V<T>*>(x + i));
  }
  if (i == count) return;
  T last[LANES<T>] = {};
  std::copy(x + i, x + count, last);
  V<T>& values = *reinterpret_cast<V<T>*>(last);
  values = elu_of<T>(values);
  std::copy(last, last + (count - i), y + i);
}
