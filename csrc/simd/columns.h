// Products of a small matrix with columns of vectors.
//
// Included by simd/each.h, in the namespace of an instruction set, after simd/exp.h, which defines the vectors: no
// include guard.

// Call finish(m, n, sum) with every vector of the product a b, that of row m at column n. Entry (m, k) of a is
// a[m * a_row + k * a_column]; rows of b begin b_row apart.
template <class T, int ROWS, int VECTORS, class Finish>
INVERTBENCH_INLINE void multiply_block(
    const T* a, int64_t a_row, int64_t a_column, const T* b, int64_t b_row, int64_t depth, const Finish& finish) {
  V<T> sums[ROWS][VECTORS] = {};
  for (int64_t k = 0; k < depth; ++k, a += a_column, b += b_row) {
    V<T> values[VECTORS];
    _Pragma("GCC unroll 8")
    for (int v = 0; v < VECTORS; ++v) values[v] = reinterpret_cast<const V<T>*>(b)[v];
    _Pragma("GCC unroll 16")
    for (int m = 0; m < ROWS; ++m) {
      _Pragma("GCC unroll 8")
      for (int v = 0; v < VECTORS; ++v) sums[m][v] += a[m * a_row] * values[v];
    }
  }
  _Pragma("GCC unroll 16")
  for (int m = 0; m < ROWS; ++m) {
    _Pragma("GCC unroll 8")
    for (int v = 0; v < VECTORS; ++v) finish(m, v * LANES<T>, sums[m][v]);
  }
}

template <class T, int VECTORS, class Finish>
INVERTBENCH_INLINE void multiply_columns(
    int64_t rows, const T* a, int64_t a_row, int64_t a_column, const T* b, int64_t b_row, int64_t depth,
    const Finish& finish) {
  // As many sums as registers hold beside the operands, and enough to hide the latency of a multiply-add.
  constexpr int MOST = INVERTBENCH_BYTES == 64 ? (VECTORS == 1 ? 16 : 24 / VECTORS) : 12 / VECTORS;
  int64_t m = 0;
  const auto rest = [&](int64_t row, int64_t n, V<T> sum) { finish(m + row, n, sum); };
  for (; m + MOST <= rows; m += MOST) {
    multiply_block<T, MOST, VECTORS>(a + m * a_row, a_row, a_column, b, b_row, depth, rest);
  }
  if constexpr (MOST > 4) {
    for (; m + 4 <= rows; m += 4) {
      multiply_block<T, 4, VECTORS>(a + m * a_row, a_row, a_column, b, b_row, depth, rest);
    }
  }
  for (; m + 2 <= rows; m += 2) {
    multiply_block<T, 2, VECTORS>(a + m * a_row, a_row, a_column, b, b_row, depth, rest);
  }
  if (m < rows) multiply_block<T, 1, VECTORS>(a + m * a_row, a_row, a_column, b, b_row, depth, rest);
}
