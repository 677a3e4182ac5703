// Vectors of INVERTBENCH_BYTES bytes, the sum of their lanes, and exp y and exp y - 1 of them.
//
// Included by simd/each.h, in the namespace of an instruction set: no include guard.

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

template <class T>
INVERTBENCH_INLINE T sum_of_lanes(V<T> vector) {
  T lanes[LANES<T>];
  std::memcpy(lanes, &vector, sizeof lanes);
  for (int half = LANES<T> / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// Add the sums of the lanes of `count` vectors to as many numbers.
template <class T>
void add_lanes(const T* vectors, int64_t count, T* sums) {
  const V<T>* const from = reinterpret_cast<const V<T>*>(vectors);
  for (int64_t i = 0; i < count; ++i) sums[i] += sum_of_lanes<T>(from[i]);
}

// y = n log 2 + r with |r| <= log 2 / 2, and exp r - 1 to a few units in the last place.
template <class T>
struct Reduced {
  V<T> shifted;  // its last bits are n
  V<T> n;
  V<T> rest;
};

template <class T>
INVERTBENCH_INLINE Reduced<T> reduced(V<T> y) {
  using Of = VectorOf<T>;
  // Adding a number so large that the last place of the sum is 1 rounds to an integer.
  const V<T> shifted = y * T(1.44269504088896340736) + Of::to_nearest, n = shifted - Of::to_nearest;
  const V<T> r = (y - n * Of::ln2_high) - n * Of::ln2_low;
  constexpr double inverse_factorials[] = {
      1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800,
      1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
  V<T> series = V<T>{} + T(inverse_factorials[Of::terms - 1]);
  _Pragma("GCC unroll 16")
  for (int k = Of::terms - 2; k >= 0; --k) series = series * r + T(inverse_factorials[k]);
  return {shifted, n, series * r};
}

// 2^n, for the n of which `shifted` has the last bits.
template <class T>
INVERTBENCH_INLINE V<T> power_of_two(V<T> shifted) {
  using I = typename VectorOf<T>::I;
  return (V<T>)(((I)shifted << VectorOf<T>::mantissa) + (I)(V<T>{} + T(1)));
}

template <class T>
INVERTBENCH_INLINE V<T> between(V<T> y, T low, T high) {
  y = y > high ? V<T>{} + high : y;
  return y < low ? V<T>{} + low : y;
}

// exp y - 1 to a few units in the last place, also where y is small. NaN stays NaN; y is cut to [-40, 40].
template <class T>
INVERTBENCH_INLINE V<T> expm1_of(V<T> y) {
  // beyond, exp y - 1 is -1, and tanh(y / 2) is 1, in either precision
  const Reduced<T> of = reduced<T>(between<T>(y, T(-40), T(40)));
  const V<T> power = power_of_two<T>(of.shifted);
  return power * of.rest + (power - T(1));
}

// exp y to a few units in the last place, 0 and infinity included. NaN stays NaN.
template <class T>
INVERTBENCH_INLINE V<T> exp_of(V<T> y) {
  using Of = VectorOf<T>;
  constexpr T bound = Of::mantissa == 23 ? T(120) : T(800);  // beyond the logarithms of the least and greatest numbers
  const Reduced<T> of = reduced<T>(between<T>(y, -bound, bound));
  // 2^n may be no number where the result is one, so it is two factors.
  const V<T> half = of.n * T(0.5) + Of::to_nearest, other = of.n - (half - Of::to_nearest) + Of::to_nearest;
  return (of.rest + T(1)) * power_of_two<T>(half) * power_of_two<T>(other);
}
