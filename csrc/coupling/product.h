// Products of matrices whose rows and steps may be anywhere in memory: convolutions and their gradients.
//
// Included by simd/each.h, in the namespace of an instruction set, with INVERTBENCH_BYTES, after simd/exp.h, which
// defines the vectors: no include guard.

// c[m] = start[m] + sum over groups, runs and steps of a[m] * b, for rows m of whole vectors. Row m of a begins at
// a + a_places[m] * a_row, that of c at c + c_places[m] * c_row, and of `start`, which may be c, at
// start + c_places[m] * start_row; from one group, run or step to the next, a and b move by the given distances.
struct Product {
  int64_t groups, runs, steps, a_group, a_run, a_step, b_group, b_run, b_step, a_row, c_row, start_row;
};

// As many sums as registers hold beside their operands: 32 of AVX-512, else 16.
constexpr int MOST_VECTORS = INVERTBENCH_BYTES == 64 ? 4 : 2;
template <int VECTORS>
constexpr int MOST_ROWS = VECTORS == MOST_VECTORS ? 6 : 8;

// `start` is added last: sums continued from one call to the next would round more.
template <class T, int VECTORS, int ROWS>
__attribute__((noinline)) void multiply_block(
    const Product& of, const T* a, const int64_t* a_places, const T* b, const T* start, T* c,
    const int64_t* c_places) {
  V<T> sums[ROWS][VECTORS] = {};
  const T* rows[ROWS];
  for (int m = 0; m < ROWS; ++m) rows[m] = a + a_places[m] * of.a_row;
  const int64_t a_step = of.a_step, b_step = of.b_step;
  for (int64_t group = 0; group < of.groups; ++group) {
    for (int64_t run = 0; run < of.runs; ++run) {
      const T* values = b + group * of.b_group + run * of.b_run;
      const int64_t first = group * of.a_group + run * of.a_run, end = first + of.steps * a_step;
      for (int64_t at = first; at < end; at += a_step, values += b_step) {
        V<T> factors[VECTORS];
        _Pragma("GCC unroll 8")
        for (int v = 0; v < VECTORS; ++v) factors[v] = reinterpret_cast<const V<T>*>(values)[v];
        _Pragma("GCC unroll 8")
        for (int m = 0; m < ROWS; ++m) {
          _Pragma("GCC unroll 8")
          for (int v = 0; v < VECTORS; ++v) sums[m][v] += rows[m][at] * factors[v];
        }
      }
    }
  }
  _Pragma("GCC unroll 8")
  for (int m = 0; m < ROWS; ++m) {
    _Pragma("GCC unroll 8")
    for (int v = 0; v < VECTORS; ++v) {
      const V<T> before = reinterpret_cast<const V<T>*>(start + c_places[m] * of.start_row)[v];
      reinterpret_cast<V<T>*>(c + c_places[m] * of.c_row)[v] = before + sums[m][v];
    }
  }
}

template <class T, int VECTORS, int ROWS = MOST_ROWS<VECTORS>>
INVERTBENCH_INLINE void multiply_rows(
    int64_t rows, const Product& of, const T* a, const int64_t* a_places, const T* b, const T* start, T* c,
    const int64_t* c_places) {
  if constexpr (ROWS > 1) {
    if (rows < ROWS) return multiply_rows<T, VECTORS, ROWS - 1>(rows, of, a, a_places, b, start, c, c_places);
  }
  multiply_block<T, VECTORS, ROWS>(of, a, a_places, b, start, c, c_places);
}

template <class T, int VECTORS = MOST_VECTORS>
void multiply_columns(
    int64_t vectors, int64_t rows, const Product& of, const T* a, const int64_t* a_places, const T* b, const T* start,
    T* c, const int64_t* c_places) {
  if constexpr (VECTORS > 1) {
    if (vectors < VECTORS) {
      return multiply_columns<T, VECTORS - 1>(vectors, rows, of, a, a_places, b, start, c, c_places);
    }
  }
  for (int64_t blocks = (rows + MOST_ROWS<VECTORS> - 1) / MOST_ROWS<VECTORS>; blocks > 0; --blocks) {
    const int64_t some = (rows + blocks - 1) / blocks;  // blocks of about the same size: small ones are slow
    multiply_rows<T, VECTORS>(some, of, a, a_places, b, start, c, c_places);
    rows -= some;
    a_places += some;
    c_places += some;
  }
}

// The product for `rows` rows of `columns` numbers, whole vectors.
template <class T>
void multiply(
    const Product& of, int64_t rows, int64_t columns, const T* a, const int64_t* a_places, const T* b, const T* start,
    T* c, const int64_t* c_places) {
  int64_t vectors = columns / LANES<T>, n = 0;
  for (int64_t panels = (vectors + MOST_VECTORS - 1) / MOST_VECTORS; panels > 0; --panels) {
    const int64_t some = (vectors + panels - 1) / panels;
    multiply_columns<T>(some, rows, of, a, a_places, b + n, start + n, c + n, c_places);
    vectors -= some;
    n += some * LANES<T>;
  }
}
