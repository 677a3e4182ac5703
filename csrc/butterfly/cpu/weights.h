// The weight of a butterfly (2, 2, P): its log-determinant, its inverse, and the order in which tiles read it.
//
// Included by simd/each.h, in the namespace of an instruction set: no include guard.

// Matrices of which one logarithm is taken: the mantissas of their determinants are multiplied, the exponents added.
constexpr int64_t CHUNK = 512;

// The sum of log|ad - bc| over `count` matrices, whose entries a, b, c, d lie `pitch` apart.
template <class T>
double log_abs_dets(const T* weight, int64_t pitch, int64_t count) {
  typedef int64_t Integers __attribute__((vector_size(INVERTBENCH_BYTES)));
  using Reals = V<double>;
  constexpr int L = LANES<double>;
  const T *a = weight, *b = a + pitch, *c = b + pitch, *d = c + pitch;
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += CHUNK) {
    const int64_t size = std::min(CHUNK, count - begin);
    alignas(INVERTBENCH_BYTES) double dets[CHUNK];
    for (int64_t i = 0; i < size; ++i) {
      dets[i] = double(a[begin + i]) * double(d[begin + i]) - double(b[begin + i]) * double(c[begin + i]);
    }
    Reals mantissas = Simd<double>::splat(1);
    Integers exponents = {}, odd = {};
    const int64_t whole = size / L * L;
    for (int64_t i = 0; i < whole; i += L) {
      const Integers bits = (Integers)*reinterpret_cast<const Reals*>(dets + i);
      const Integers exponent = bits >> 52 & 2047;
      odd |= (exponent - 1) | (2046 - exponent);  // negative for values that are 0, infinite or NaN
      exponents += exponent;
      mantissas *= (Reals)((bits & ((int64_t(1) << 52) - 1)) | int64_t(1023) << 52);
    }
    int64_t exponent = 0, any = 0;
    double mantissa = 1;
    for (int j = 0; j < L; ++j) {
      exponent += exponents[j];
      any |= odd[j];
      mantissa *= mantissas[j];
    }
    const int64_t done = any < 0 ? 0 : whole;
    if (done) total += std::log(mantissa) + double(exponent - 1023 * whole) * 0.693147180559945309417;
    for (int64_t i = done; i < size; ++i) total += std::log(std::abs(dets[i]));
  }
  return total;
}

// Write scale times the gradient of the log-determinant, for every matrix.
template <class T>
void log_abs_det_gradient(const Butterfly& butterfly, const T* weight, T scale, T* gradient) {
  const int64_t pitch = butterfly.matrices;
  for (const Part& part : butterfly.parts) {
    for (const Factor& factor : part.factors) {
      const int64_t count = part.size / 2 / (butterfly.shared ? factor.half : 1);
      const T factor_scale = butterfly.shared ? scale * T(factor.half) : scale;
      const T *a = weight + factor.weight, *b = a + pitch, *c = b + pitch, *d = c + pitch;
      T *e = gradient + factor.weight, *f = e + pitch, *g = f + pitch, *h = g + pitch;
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) {
        const T each = factor_scale / (a[i] * d[i] - b[i] * c[i]);
        e[i] = d[i] * each;
        f[i] = -c[i] * each;
        g[i] = -b[i] * each;
        h[i] = a[i] * each;
      }
    }
  }
}

template <class T>
void invert(const T* weight, int64_t pitch, int64_t begin, int64_t end, T* inverse) {
  const T *a = weight, *b = a + pitch, *c = b + pitch, *d = c + pitch;
  T *e = inverse, *f = e + pitch, *g = f + pitch, *h = g + pitch;
#pragma GCC ivdep
  for (int64_t i = begin; i < end; ++i) {
    const T det = a[i] * d[i] - b[i] * c[i];
    e[i] = d[i] / det;
    f[i] = -b[i] / det;
    g[i] = -c[i] / det;
    h[i] = a[i] / det;
  }
}

// Convert the gradient G by the inverses M to -M^T G M^T, the gradient by the original matrices, in place.
template <class T>
void invert_gradient(const T* inverse, int64_t count, T* gradient) {
  const T *a = inverse, *b = a + count, *c = b + count, *d = c + count;
  T *e = gradient, *f = e + count, *g = f + count, *h = g + count;
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const T first = a[i] * e[i] + c[i] * g[i], second = a[i] * f[i] + c[i] * h[i];
    const T third = b[i] * e[i] + d[i] * g[i], fourth = b[i] * f[i] + d[i] * h[i];
    e[i] = -(first * a[i] + second * b[i]);
    f[i] = -(first * c[i] + second * d[i]);
    g[i] = -(third * a[i] + fourth * b[i]);
    h[i] = -(third * c[i] + fourth * d[i]);
  }
}

// Calls body(matrix, place, count, step): matrices `matrix`, matrix + 1, ... of the weight stand at `place`,
// place + step, ... of the packed weight.
template <class Body>
INVERTBENCH_INLINE void for_each_packed(const Problem& problem, const Pass& pass, bool shared, const Body& body) {
  const int64_t wide = pass.widest(), alike = pass.alike(), size = pass.group();
  const int64_t inner = pass.count == 2 ? wide / (2 * alike) : 1, runs = alike / problem.width;
  int64_t at = pass.packed;
  for (int64_t i = 0; i < problem.rows / (2 * wide); ++i) {
    for (int64_t j = 0; j < inner; ++j, at += shared ? size : size * alike) {
      for (int t = 0; t < pass.count; ++t) {
        const Factor& factor = pass.factors[t];
        // The pairs of a factor in a group, one for each half of the other factor: above it, the half counts blocks,
        // below it, places in a block.
        const bool outer = pass.strides[t] == wide;
        for (int64_t half = 0; half < pass.count; ++half) {
          const int64_t block = outer ? i : (2 * i + half) * inner + j;
          const int64_t row = outer && pass.count == 2 ? (2 * j + half) * alike : 0;
          const int64_t first = factor.weight + (shared ? block : block * factor.half);
          const int64_t place = at + 4 * (pass.count * t + half);
          if (shared) {
            body(first, place, 1, 0);
          } else if (problem.width == problem.run) {
            body(first + row, place, alike, size);
          } else {
            for (int64_t r = 0; r < runs; ++r) {
              const int64_t entry = (row / problem.width + r) * problem.run + problem.column;
              body(first + entry, place + r * problem.width * size, problem.width, size);
            }
          }
        }
      }
    }
  }
}

// Copies of the matrices of a pass in the order in which `apply_pass` reads them.
template <class T>
void pack(const Problem& problem, const Pass& pass, const Butterfly& butterfly, const T* weight, T* packed) {
  struct Copy {
    const T* weight;
    int64_t pitch;
    T* packed;
    INVERTBENCH_INLINE void operator()(int64_t matrix, int64_t place, int64_t count, int64_t step) const {
      constexpr int L = LANES<T>, P = PIECE<T>;
      const T* from = weight + matrix;
      T* to = packed + place;
      int64_t i = 0;
      for (; i + L <= count; i += L, to += L * step) {
#pragma GCC unroll 2
        for (int half = 0; half < 4; half += P) {
          V<T> v[P];
#pragma GCC unroll 4
          for (int r = 0; r < P; ++r) std::memcpy(v + r, from + (half + r) * pitch + i, sizeof v[r]);
          transpose_pieces(v);
          T* pieces[L];
#pragma GCC unroll 16
          for (int s = 0; s < L; ++s) pieces[s] = to + s * step + half;
#pragma GCC unroll 4
          for (int r = 0; r < P; ++r) Simd<T>::split(v[r], pieces + r, 0);
        }
      }
      for (; i < count; ++i, to += step) {
        for (int j = 0; j < 4; ++j) to[j] = from[j * pitch + i];
      }
    }
  };
  for_each_packed(problem, pass, butterfly.shared, Copy{weight, butterfly.matrices, packed});
}

// Add numbers in packed order to those in the order of the weight; a matrix may occur in several places.
template <class T>
void add_unpacked(const Problem& problem, const Pass& pass, const Butterfly& butterfly, const double* packed,
                  T* weight) {
  struct Add {
    const double* packed;
    int64_t pitch;
    T* weight;
    INVERTBENCH_INLINE void operator()(int64_t matrix, int64_t place, int64_t count, int64_t step) const {
      for (int64_t i = 0; i < count; ++i) {
        for (int j = 0; j < 4; ++j) weight[j * pitch + matrix + i] += packed[place + i * step + j];
      }
    }
  };
  for_each_packed(problem, pass, butterfly.shared, Add{packed, butterfly.matrices, weight});
}
