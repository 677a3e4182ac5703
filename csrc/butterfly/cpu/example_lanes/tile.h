// A butterfly on one tile: U vectors of LANES samples, each row of the tile one entry of all of them.
//
// Included by simd/each.h, in the namespace of an instruction set: no include guard.

// Entries `from`, from + 1, ... of the samples at x[0], x[1], ... into rows `row`, row + stride, ... of the tile.
template <int U, class T>
void load_run(const T* const* x, int64_t from, int64_t length, T* tile, int64_t row, int64_t stride) {
  constexpr int L = LANES<T>, P = PIECE<T>;
  int64_t i = 0;
  for (; i + P <= length; i += P) {
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) {
      V<T> v[P];
#pragma GCC unroll 4
      for (int r = 0; r < P; ++r) v[r] = Simd<T>::join(x + u * L + r, from + i);
      transpose_pieces(v);
#pragma GCC unroll 4
      for (int r = 0; r < P; ++r) reinterpret_cast<V<T>*>(tile + (row + (i + r) * stride) * U * L)[u] = v[r];
    }
  }
  for (; i < length; ++i) {
    for (int s = 0; s < U * L; ++s) tile[(row + i * stride) * U * L + s] = x[s][from + i];
  }
}

template <int U, class T>
void store_run(T* const* y, int64_t to, int64_t length, const T* tile, int64_t row, int64_t stride) {
  constexpr int L = LANES<T>, P = PIECE<T>;
  int64_t i = 0;
  for (; i + P <= length; i += P) {
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) {
      V<T> v[P];
#pragma GCC unroll 4
      for (int r = 0; r < P; ++r) v[r] = reinterpret_cast<const V<T>*>(tile + (row + (i + r) * stride) * U * L)[u];
      transpose_pieces(v);
#pragma GCC unroll 4
      for (int r = 0; r < P; ++r) Simd<T>::split(v[r], y + u * L + r, to + i);
    }
  }
  for (; i < length; ++i) {
    for (int s = 0; s < U * L; ++s) y[s][to + i] = tile[(row + i * stride) * U * L + s];
  }
}

// Every 2 `alike` rows, `alike` groups begin; with two factors, not in every other `wide` rows, which the groups of the
// ones before reach.
template <int C>
INVERTBENCH_INLINE int64_t next_row(int64_t row, int64_t wide, int64_t alike) {
  const int64_t next = row + 2 * alike;
  return C == 2 && next % (2 * wide) == wide ? next + wide : next;
}

// The four entries of a matrix, each broadcast to a vector.
template <class T>
struct Matrix {
  V<T> a, b, c, d;
  explicit INVERTBENCH_INLINE Matrix(const T* m)
      : a(Simd<T>::splat(m[0])), b(Simd<T>::splat(m[1])), c(Simd<T>::splat(m[2])), d(Simd<T>::splat(m[3])) {}
  INVERTBENCH_INLINE void apply(V<T> u, V<T> v, V<T>& y, V<T>& z) const {
    y = a * u + b * v;
    z = c * u + d * v;
  }
  INVERTBENCH_INLINE void apply_transposed(V<T>& u, V<T>& v) const {
    const V<T> y = a * u + c * v;
    v = b * u + d * v;
    u = y;
  }
};

// One pass of C factors on a block of rows; `from` and `to` may be the same.
template <bool SHARED, int U, int C, class T>
void apply_pass(const Pass& pass, int64_t block, const T* matrices, const T* from, T* to) {
  constexpr int E = 1 << C;
  const int64_t wide = pass.widest(), alike = pass.alike();
  const T* m = matrices;
  for (int64_t row = 0; row < block; row = next_row<C>(row, wide, alike)) {
    const V<T>* source[E];
    V<T>* target[E];
#pragma GCC unroll 4
    for (int e = 0; e < E; ++e) {  // the first factor pairs along the higher bit of e
      const int64_t place = row + (e >> (C - 1)) * pass.strides[0] + (C == 2 ? (e & 1) * pass.strides[1] : 0);
      source[e] = reinterpret_cast<const V<T>*>(from) + place * U;
      target[e] = reinterpret_cast<V<T>*>(to) + place * U;
    }
    for (int64_t g = 0; g < alike; ++g) {
      V<T> x[E][U];
#pragma GCC unroll 4
      for (int e = 0; e < E; ++e) {
#pragma GCC unroll 4
        for (int k = 0; k < U; ++k) x[e][k] = source[e][g * U + k];
      }
#pragma GCC unroll 2
      for (int i = 0; i < C; ++i) {
        const int bit = 1 << (C - 1 - i);
#pragma GCC unroll 2
        for (int half = 0; half < C; ++half) {
          const int e = i == 0 ? half : 2 * half;
          const Matrix<T> matrix(m + 4 * (C * i + half));
#pragma GCC unroll 4
          for (int k = 0; k < U; ++k) matrix.apply(x[e][k], x[e | bit][k], x[e][k], x[e | bit][k]);
        }
      }
#pragma GCC unroll 4
      for (int e = 0; e < E; ++e) {
#pragma GCC unroll 4
        for (int k = 0; k < U; ++k) target[e][g * U + k] = x[e][k];
      }
      if (!SHARED) m += C * C * 4;
    }
    if (SHARED) m += C * C * 4;
  }
}

// Backward pass of one pass: `tile` holds its input, `grads` the gradient of its output and then of its input; the
// gradients of the matrices, summed over the samples, are added to `sums` in packed order.
template <bool SHARED, int U, int C, class T>
void backward_pass(const Pass& pass, int64_t block, const T* matrices, const T* tile, T* grads, double* sums) {
  constexpr int E = 1 << C;
  const int64_t wide = pass.widest(), alike = pass.alike();
  const T* m = matrices;
  double* sum = sums;
  for (int64_t row = 0; row < block; row = next_row<C>(row, wide, alike)) {
    const V<T>* source[E];
    V<T>* target[E];
#pragma GCC unroll 4
    for (int e = 0; e < E; ++e) {
      const int64_t place = row + (e >> (C - 1)) * pass.strides[0] + (C == 2 ? (e & 1) * pass.strides[1] : 0);
      source[e] = reinterpret_cast<const V<T>*>(tile) + place * U;
      target[e] = reinterpret_cast<V<T>*>(grads) + place * U;
    }
    for (int64_t g = 0; g < alike; ++g) {
      V<T> x[C][E][U], dy[E][U];
#pragma GCC unroll 4
      for (int e = 0; e < E; ++e) {
#pragma GCC unroll 4
        for (int k = 0; k < U; ++k) {
          x[0][e][k] = source[e][g * U + k];
          dy[e][k] = target[e][g * U + k];
        }
      }
      if constexpr (C == 2) {
#pragma GCC unroll 2
        for (int e = 0; e < 2; ++e) {
          const Matrix<T> matrix(m + 4 * e);
#pragma GCC unroll 4
          for (int k = 0; k < U; ++k) matrix.apply(x[0][e][k], x[0][e | 2][k], x[1][e][k], x[1][e | 2][k]);
        }
      }
#pragma GCC unroll 2
      for (int i = C - 1; i >= 0; --i) {
        const int bit = 1 << (C - 1 - i);
#pragma GCC unroll 2
        for (int half = 0; half < C; ++half) {
          const int e = i == 0 ? half : 2 * half;
          const Matrix<T> matrix(m + 4 * (C * i + half));
          V<T> products[4] = {dy[e][0] * x[i][e][0], dy[e][0] * x[i][e | bit][0], dy[e | bit][0] * x[i][e][0],
                              dy[e | bit][0] * x[i][e | bit][0]};
          matrix.apply_transposed(dy[e][0], dy[e | bit][0]);
#pragma GCC unroll 4
          for (int k = 1; k < U; ++k) {
            products[0] += dy[e][k] * x[i][e][k];
            products[1] += dy[e][k] * x[i][e | bit][k];
            products[2] += dy[e | bit][k] * x[i][e][k];
            products[3] += dy[e | bit][k] * x[i][e | bit][k];
            matrix.apply_transposed(dy[e][k], dy[e | bit][k]);
          }
          add_sums(products, sum + 4 * (C * i + half));
        }
      }
#pragma GCC unroll 4
      for (int e = 0; e < E; ++e) {
#pragma GCC unroll 4
        for (int k = 0; k < U; ++k) target[e][g * U + k] = dy[e][k];
      }
      if (!SHARED) {
        m += C * C * 4;
        sum += C * C * 4;
      }
    }
    if (SHARED) {
      m += C * C * 4;
      sum += C * C * 4;
    }
  }
}
