// The gates of couplings, flows/affine.py: log-scale and scale as functions of a network's output s, and the gradient.
//
// Included by simd/each.h, in the namespace of an instruction set, after simd/exp.h, which defines the vectors: no
// include guard. Their order is that of flows/affine.py.

// log-scale and scale at s, and the derivative of the log-scale by s.
template <class T>
struct Scale {
  V<T> log, value, slope;
};

// log(1 + y) = 2 atanh(y / (2 + y)) for -1/2 <= y <= 1, to a few units in the last place, also where y is small.
template <class T>
INVERTBENCH_INLINE V<T> log1p_of(V<T> y) {
  constexpr int terms = VectorOf<T>::mantissa == 23 ? 8 : 17;  // (1/3)^(2 terms) / (2 terms + 1) is below half a unit
  const V<T> w = y / (y + T(2)), square = w * w;
  V<T> series = V<T>{} + T(2) / T(2 * terms - 1);
  _Pragma("GCC unroll 16")
  for (int k = terms - 1; k > 0; --k) series = series * square + T(2) / T(2 * k - 1);
  return series * w;
}

struct Exponential {
  template <class T>
  static INVERTBENCH_INLINE Scale<T> at(V<T> s) {
    return {s, exp_of<T>(s), V<T>{} + T(1)};
  }
};

// sigmoid(z) = 1 / (1 + e), or e / (1 + e) where z < 0, with e = exp(-|z|), which cannot overflow.
struct Sigmoid {
  template <class T>
  static INVERTBENCH_INLINE Scale<T> at(V<T> s) {
    const V<T> z = s + T(2), e = exp_of<T>(z < T(0) ? z : -z), larger = T(1) / (e + T(1)), smaller = e * larger;
    const V<T> log = (z < T(0) ? z : V<T>{}) - log1p_of<T>(e);
    return {log, z < T(0) ? smaller : larger, z < T(0) ? larger : smaller};
  }
};

// 1 + t / 2 with t = tanh(s / 2) = e / (e + 2) and e = exp(s) - 1.
struct Bounded {
  template <class T>
  static INVERTBENCH_INLINE Scale<T> at(V<T> s) {
    const V<T> e = expm1_of<T>(s), t = e / (e + T(2)), half = t * T(0.5), scale = half + T(1);
    return {log1p_of<T>(half), scale, (T(1) - t * t) * T(0.25) / scale};
  }
};
