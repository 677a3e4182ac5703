// Vectors of INVERTBENCH_BYTES bytes, and exp y - 1 of them.
//
// Included once for each instruction set, in a separate namespace: no include guard.

template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float V __attribute__((vector_size(INVERTBENCH_BYTES), may_alias, aligned(4)));
  typedef int32_t I __attribute__((vector_size(INVERTBENCH_BYTES)));
  static constexpr int mantissa = 23, terms = 7;
  static constexpr float to_nearest = 0x1.8p23F, ln2_high = 0x1.62e4p-1F, ln2_low = 0x1.7f7d1cp-20F;
};
template <>
struct VectorOf<double> {
  typedef double V __attribute__((vector_size(INVERTBENCH_BYTES), may_alias, aligned(8)));
  typedef int64_t I __attribute__((vector_size(INVERTBENCH_BYTES)));
  static constexpr int mantissa = 52, terms = 13;
  static constexpr double to_nearest = 0x1.8p52, ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
};
template <class T>
using V = typename VectorOf<T>::V;
template <class T>
constexpr int LANES = INVERTBENCH_BYTES / int(sizeof(T));

// exp y - 1 to a few units in the last place, also where y is small. NaN stays NaN; y is cut to [-40, 40].
template <class T>
INVERTBENCH_INLINE V<T> expm1_of(V<T> y) {
  using Of = VectorOf<T>;
  using I = typename Of::I;
  const V<T> bound = V<T>{} + T(40);  // beyond, exp y - 1 is -1, and tanh(y / 2) is 1, in either precision
  y = y > bound ? bound : y;
  y = y < -bound ? -bound : y;
  // y = n log 2 + r, and exp y - 1 = 2^n (exp r - 1) + (2^n - 1). Adding a number so large that the last place of
  // the sum is 1 rounds to an integer: the last bits of the sum are n.
  const V<T> shifted = y * T(1.44269504088896340736) + Of::to_nearest, n = shifted - Of::to_nearest;
  const V<T> r = (y - n * Of::ln2_high) - n * Of::ln2_low;
  const V<T> power = (V<T>)(((I)shifted << Of::mantissa) + (I)(V<T>{} + T(1)));
  constexpr double inverse_factorials[] = {
      1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800,
      1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
  V<T> series = V<T>{} + T(inverse_factorials[Of::terms - 1]);
  _Pragma("GCC unroll 16")
  for (int k = Of::terms - 2; k >= 0; --k) series = series * r + T(inverse_factorials[k]);
  return power * (series * r) + (power - T(1));
}
