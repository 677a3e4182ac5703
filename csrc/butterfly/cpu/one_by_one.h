// A few samples, one after the other, with the unpacked weight.
//
// Included by simd/each.h, in the namespace of an instruction set: no include guard.

#if INVERTBENCH_BYTES == 64

// The pairs of a factor whose stride is less than a vector and 2^k or 3 * 2^k. A step takes up to two vectors of
// entries: of whole blocks, the first entries of all pairs become one vector, the second entries another, in the order
// of the matrices. No store reaches into the next step, whose loads would wait for it.
template <class T>
struct NarrowPairs {
  static constexpr int L = LANES<T>;
  using S = Simd<T>;
  int quarters = 0;  // of a vector of pairs that a step does; 0 for another stride
  alignas(64) typename S::Place first[L] = {}, second[L] = {}, back[2 * L] = {};

  explicit NarrowPairs(int64_t half) {
    if (half >= L) return;
    quarters = L % half == 0 ? 4 : L * 3 / 4 % half == 0 ? 3 : 0;
    for (int i = 0; i < step(); ++i) {
      const auto entry = typename S::Place(i / half * 2 * half + i % half);
      first[i] = entry;
      second[i] = typename S::Place(entry + half);
      back[entry] = typename S::Place(i);
      back[entry + half] = typename S::Place(L + i);
    }
  }

  int step() const { return L / 4 * quarters; }

  static INVERTBENCH_INLINE V<T> vector(const T* from) {
    V<T> v;
    std::memcpy(&v, from, sizeof v);
    return v;
  }

  INVERTBENCH_INLINE void load(const T* entries, V<T>& p, V<T>& q) const {
    const V<T> a = vector(entries), b = vector(entries + L);
    p = S::pick(a, b, first);
    q = S::pick(a, b, second);
  }

  INVERTBENCH_INLINE void store(T* entries, V<T> u, V<T> v) const {
    S::store_quarters(S::pick(u, v, back), 4, entries);
    S::store_quarters(S::pick(u, v, back + L), 2 * quarters - 4, entries + L);
  }
};

// One factor on one sample, from `x` to `y`, which may be `x`. Returns the number of pairs done: not the last, nor
// those of other strides.
template <bool INVERSE, class T>
int64_t apply_narrow(const Factor& factor, int64_t size, const T* weight, int64_t pitch, const T* x, T* y) {
  const NarrowPairs<T> narrow(factor.half);
  int64_t at = 0;
  for (; narrow.quarters > 0 && at + LANES<T> <= size / 2; at += narrow.step()) {
    const T* matrices = weight + factor.weight + at;
    const V<T> a = narrow.vector(matrices), b = narrow.vector(matrices + pitch);
    const V<T> c = narrow.vector(matrices + 2 * pitch), d = narrow.vector(matrices + 3 * pitch);
    V<T> p, q;
    narrow.load(x + 2 * at, p, q);
    if (INVERSE) {
      const V<T> scale = 1 / (a * d - b * c);
      narrow.store(y + 2 * at, (d * p - b * q) * scale, (a * q - c * p) * scale);
    } else {
      narrow.store(y + 2 * at, a * p + b * q, c * p + d * q);
    }
  }
  return at;
}

// The same back, see `factor_back`.
template <class T>
int64_t narrow_back(const Factor& factor, int64_t size, const T* weight, int64_t pitch, const T* x, T* row,
                    T* gradient) {
  const NarrowPairs<T> narrow(factor.half);
  int64_t at = 0;
  for (; narrow.quarters > 0 && at + LANES<T> <= size / 2; at += narrow.step()) {
    const T* matrices = weight + factor.weight + at;
    T* sums = gradient + factor.weight + at;
    V<T> p, q, u, v;
    narrow.load(x + 2 * at, p, q);
    narrow.load(row + 2 * at, u, v);
    const V<T> products[4] = {u * p, u * q, v * p, v * q};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      Simd<T>::store_quarters(narrow.vector(sums + i * pitch) + products[i], narrow.quarters, sums + i * pitch);
    }
    const V<T> a = narrow.vector(matrices), b = narrow.vector(matrices + pitch);
    const V<T> c = narrow.vector(matrices + 2 * pitch), d = narrow.vector(matrices + 3 * pitch);
    narrow.store(row + 2 * at, a * u + c * v, b * u + d * v);
  }
  return at;
}

#endif

// One factor on one sample, in place.
template <bool INVERSE, bool SHARED, class T>
void apply_factor(const Factor& factor, int64_t size, const T* weight, int64_t pitch, T* row) {
  const int64_t half = factor.half;
  int64_t done = 0;
#if INVERTBENCH_BYTES == 64
  if (!SHARED) done = apply_narrow<INVERSE>(factor, size, weight, pitch, row, row);
#endif
  const T *a = weight + factor.weight + done, *b = a + pitch, *c = b + pitch, *d = c + pitch;
  const T* const end = row + size;
  for (row += 2 * done; row < end; row += 2 * half) {
    T *u = row, *v = row + half;
    for (int64_t k = 0; k < half; ++k) {
      const int64_t at = SHARED ? 0 : k;
      const T p = u[k], q = v[k];
      if (INVERSE) {
        const T scale = 1 / (a[at] * d[at] - b[at] * c[at]);
        u[k] = (d[at] * p - b[at] * q) * scale;
        v[k] = (a[at] * q - c[at] * p) * scale;
      } else {
        u[k] = a[at] * p + b[at] * q;
        v[k] = c[at] * p + d[at] * q;
      }
    }
    const int64_t step = SHARED ? 1 : half;
    a += step, b += step, c += step, d += step;
  }
}

template <class T>
void apply_few(const Butterfly& butterfly, bool inverse, const std::vector<Run>& runs, const T* weight, int64_t batch,
               const T* x, T* y, T* row) {
  for (int64_t sample = 0; sample < batch; ++sample, x += butterfly.dim, y += butterfly.dim) {
    for (const Run& run : runs) {
      for (int64_t i = 0; i < run.length; ++i) row[run.row + i * run.stride] = x[run.from + i];
    }
    for (const Part& part : butterfly.parts) {
      for (const Factor& factor : part.factors) {
        T* entries = row + part.start;
        if (inverse) {
          if (butterfly.shared) apply_factor<true, true>(factor, part.size, weight, butterfly.matrices, entries);
          else apply_factor<true, false>(factor, part.size, weight, butterfly.matrices, entries);
        } else {
          if (butterfly.shared) apply_factor<false, true>(factor, part.size, weight, butterfly.matrices, entries);
          else apply_factor<false, false>(factor, part.size, weight, butterfly.matrices, entries);
        }
      }
    }
    for (const Run& run : runs) {
      for (int64_t i = 0; i < run.length; ++i) y[run.from + i] = row[run.row + i * run.stride];
    }
  }
}

// One factor on one sample, from `x` to `y`.
template <class T>
void apply_factor_to(const Factor& factor, int64_t size, const T* weight, int64_t pitch, const T* x, T* y) {
  const int64_t half = factor.half;
  int64_t done = 0;
#if INVERTBENCH_BYTES == 64
  done = apply_narrow<false>(factor, size, weight, pitch, x, y);
#endif
  const T *a = weight + factor.weight + done, *b = a + pitch, *c = b + pitch, *d = c + pitch;
  for (int64_t n = 2 * done; n < size; n += 2 * half, a += half, b += half, c += half, d += half) {
    const T *p = x + n, *q = p + half;
    T *u = y + n, *v = u + half;
#pragma GCC ivdep
    for (int64_t k = 0; k < half; ++k) {
      u[k] = a[k] * p[k] + b[k] * q[k];
      v[k] = c[k] * p[k] + d[k] * q[k];
    }
  }
}

// Backward pass of one factor on one sample: `x` is its input, `row` the gradient of its output and then of its input;
// the gradients of the matrices are added to `gradient`.
template <class T>
void factor_back(const Factor& factor, int64_t size, const T* weight, int64_t pitch, const T* x, T* row, T* gradient) {
  const int64_t half = factor.half;
  int64_t done = 0;
#if INVERTBENCH_BYTES == 64
  done = narrow_back(factor, size, weight, pitch, x, row, gradient);
#endif
  const T *a = weight + factor.weight + done, *b = a + pitch, *c = b + pitch, *d = c + pitch;
  T *e = gradient + factor.weight + done, *f = e + pitch, *g = f + pitch, *h = g + pitch;
  for (int64_t n = 2 * done; n < size; n += 2 * half) {
    const T *p = x + n, *q = p + half;
    T *u = row + n, *v = u + half;
#pragma GCC ivdep
    for (int64_t k = 0; k < half; ++k) {
      const T first = u[k], second = v[k];
      e[k] += first * p[k];
      f[k] += first * q[k];
      g[k] += second * p[k];
      h[k] += second * q[k];
      u[k] = a[k] * first + c[k] * second;
      v[k] = b[k] * first + d[k] * second;
    }
    a += half, b += half, c += half, d += half;
    e += half, f += half, g += half, h += half;
  }
}

// Backward pass for matrices that are not shared. `scratch` has `few_scratch` numbers.
template <class T>
void backward_few(const Butterfly& butterfly, const std::vector<Run>& runs, const T* weight, int64_t batch, const T* x,
                  const T* dy, T* dx, T* gradient, T* scratch) {
  const int64_t dim = butterfly.dim, pitch = butterfly.matrices;
  T *row = scratch, *inputs = scratch + dim;  // the gradient, and the input of every factor
  for (int64_t sample = 0; sample < batch; ++sample, x += dim, dy += dim, dx += dim) {
    for (const Run& run : runs) {
      for (int64_t i = 0; i < run.length; ++i) {
        inputs[run.row + i * run.stride] = x[run.from + i];
        row[run.row + i * run.stride] = dy[run.from + i];
      }
    }
    for (const Part& part : butterfly.parts) {
      const auto input = [&](size_t i) { return inputs + int64_t(i) * dim + part.start; };
      const size_t count = part.factors.size();
      for (size_t i = 0; i + 1 < count; ++i) {
        apply_factor_to(part.factors[i], part.size, weight, pitch, input(i), input(i + 1));
      }
      for (size_t i = count; i-- > 0;) {
        factor_back(part.factors[i], part.size, weight, pitch, input(i), row + part.start, gradient);
      }
    }
    for (const Run& run : runs) {
      for (int64_t i = 0; i < run.length; ++i) dx[run.from + i] = row[run.row + i * run.stride];
    }
  }
}
