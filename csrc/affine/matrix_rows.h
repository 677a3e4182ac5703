// A matrix applied to the channels of one event, (channels, places), and its gradients.
//
// Included by simd/each.h, in the namespace of an instruction set: no include guard.

#include "simd/exp.h"
#include "simd/columns.h"

// y = a x, `rows` from `depth` channels. There are at least as many places as lanes: the last vectors may overlap those
// before. Entry (m, k) of the matrix is a[m * a_row + k * a_column].
template <class T>
void mix_event(int64_t rows, int64_t depth, const T* a, int64_t a_row, int64_t a_column, int64_t places, const T* x,
               T* y) {
  int64_t p = 0;
  const auto keep = [&](int64_t m, int64_t i, V<T> sum) { *reinterpret_cast<V<T>*>(y + m * places + p + i) = sum; };
  for (; p + 3 * LANES<T> <= places; p += 3 * LANES<T>) {
    multiply_columns<T, 3>(rows, a, a_row, a_column, x + p, places, depth, keep);
  }
  for (; p < places; p += LANES<T>) {
    p = std::min<int64_t>(p, places - LANES<T>);
    multiply_columns<T, 1>(rows, a, a_row, a_column, x + p, places, depth, keep);
  }
}

template <class T, int ROWS, int COLUMNS>
void correlate_event(int64_t places, const T* a, const T* b, T* sums, int64_t pitch) {
  V<T> found[ROWS][COLUMNS] = {};
  int64_t p = 0;
  for (; p + LANES<T> <= places; p += LANES<T>) {
    V<T> values[COLUMNS];
    _Pragma("GCC unroll 8")
    for (int c = 0; c < COLUMNS; ++c) values[c] = *reinterpret_cast<const V<T>*>(b + c * places + p);
    _Pragma("GCC unroll 8")
    for (int m = 0; m < ROWS; ++m) {
      const V<T> own = *reinterpret_cast<const V<T>*>(a + m * places + p);
      _Pragma("GCC unroll 8")
      for (int c = 0; c < COLUMNS; ++c) found[m][c] += own * values[c];
    }
  }
  _Pragma("GCC unroll 8")
  for (int m = 0; m < ROWS; ++m) {
    _Pragma("GCC unroll 8")
    for (int c = 0; c < COLUMNS; ++c) {
      for (int64_t i = p; i < places; ++i) found[m][c][0] += a[m * places + i] * b[c * places + i];
      *reinterpret_cast<V<T>*>(sums + (m * pitch + c) * LANES<T>) += found[m][c];
    }
  }
}

// Add the products of `rows` channels of a and `columns` of b, summed over the places, to `sums`, (rows, columns),
// which are still a vector each.
template <class T>
void add_event(int64_t rows, int64_t columns, int64_t places, const T* a, const T* b, T* sums) {
  for (int64_t m = 0, some; m < rows; m += some) {
    some = rows - m >= 4 ? 4 : 1;
    for (int64_t c = 0, others; c < columns; c += others) {
      others = columns - c >= 4 ? 4 : 1;
      const auto correlate = some == 4 ? (others == 4 ? correlate_event<T, 4, 4> : correlate_event<T, 4, 1>)
                                       : (others == 4 ? correlate_event<T, 1, 4> : correlate_event<T, 1, 1>);
      correlate(places, a + m * places, b + c * places, sums + (m * columns + c) * LANES<T>, columns);
    }
  }
}
