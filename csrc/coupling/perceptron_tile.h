// A perceptron of three layers over tiles of points, forward and backward, as products with small matrices that stay
// in the first-level cache.
//
// Included once for each instruction set, in a separate namespace, with INVERTBENCH_BYTES: no include guard.
// Every matrix is row-major and its rows are whole vectors, padded with zeros; points are the rows of all hidden
// values, so that all products, forward and backward, have one form.

#include "simd/expm1.h"

// c = start + a b for ROWS rows of c and VECTORS vectors of each. Entry (m, k) of a is a[m * a_row + k * a_column]; row
// m of `start`, which may be c, begins at start + m * start_row. It is added last: sums continued from one tile to the
// next would round more.
template <class T, int ROWS, int VECTORS>
INVERTBENCH_INLINE void multiply_block(
    const T* a, int64_t a_row, int64_t a_column, const T* b, int64_t depth, const T* start, int64_t start_row, T* c,
    int64_t columns) {
  V<T> sums[ROWS][VECTORS] = {};
  for (int64_t k = 0; k < depth; ++k, a += a_column, b += columns) {
    V<T> values[VECTORS];
    _Pragma("GCC unroll 8")
    for (int v = 0; v < VECTORS; ++v) values[v] = reinterpret_cast<const V<T>*>(b)[v];
    _Pragma("GCC unroll 8")
    for (int m = 0; m < ROWS; ++m) {
      _Pragma("GCC unroll 8")
      for (int v = 0; v < VECTORS; ++v) sums[m][v] += a[m * a_row] * values[v];
    }
  }
  _Pragma("GCC unroll 8")
  for (int m = 0; m < ROWS; ++m) {
    _Pragma("GCC unroll 8")
    for (int v = 0; v < VECTORS; ++v) {
      const V<T> first = reinterpret_cast<const V<T>*>(start + m * start_row)[v];
      reinterpret_cast<V<T>*>(c + m * columns)[v] = first + sums[m][v];
    }
  }
}

template <class T, int VECTORS>
void multiply_columns(
    int64_t rows, const T* a, int64_t a_row, int64_t a_column, const T* b, int64_t depth, const T* start,
    int64_t start_row, T* c, int64_t columns) {
  for (; rows >= 6; rows -= 6, a += 6 * a_row, start += 6 * start_row, c += 6 * columns) {
    multiply_block<T, 6, VECTORS>(a, a_row, a_column, b, depth, start, start_row, c, columns);
  }
  for (; rows >= 2; rows -= 2, a += 2 * a_row, start += 2 * start_row, c += 2 * columns) {
    multiply_block<T, 2, VECTORS>(a, a_row, a_column, b, depth, start, start_row, c, columns);
  }
  if (rows > 0) multiply_block<T, 1, VECTORS>(a, a_row, a_column, b, depth, start, start_row, c, columns);
}

// c = start + a b, c of `rows` rows and `columns` columns, whole vectors.
template <class T>
void multiply(
    int64_t rows, int64_t columns, int64_t depth, const T* a, int64_t a_row, int64_t a_column, const T* b,
    const T* start, int64_t start_row, T* c) {
  int64_t n = 0;
  for (; n + 2 * LANES<T> <= columns; n += 2 * LANES<T>) {
    multiply_columns<T, 2>(rows, a, a_row, a_column, b + n, depth, start + n, start_row, c + n, columns);
  }
  if (n < columns) multiply_columns<T, 1>(rows, a, a_row, a_column, b + n, depth, start + n, start_row, c + n, columns);
}

// tanh z = e / (e + 2) with e = exp(2 z) - 1, to a few units in the last place, also where z is small. NaN stays NaN.
template <class T>
INVERTBENCH_INLINE V<T> tanh_of(V<T> z) {
  const V<T> e = expm1_of<T>(z + z);
  return e / (e + T(2));
}

template <class T>
void activate(bool bounded, T* values, int64_t count) {
  for (int64_t i = 0; i < count; i += LANES<T>) {
    V<T>& h = *reinterpret_cast<V<T>*>(values + i);
    h = bounded ? tanh_of<T>(h) : (h < T(0) ? V<T>{} : h);
  }
}

// gradient *= derivative of the activation, in terms of its value.
template <class T>
void deactivate(bool bounded, const T* values, T* gradient, int64_t count) {
  for (int64_t i = 0; i < count; i += LANES<T>) {
    const V<T> h = *reinterpret_cast<const V<T>*>(values + i);
    V<T>& g = *reinterpret_cast<V<T>*>(gradient + i);
    g = bounded ? g * (T(1) - h * h) : (h <= T(0) ? V<T>{} : g);
  }
}

// The points of a tile, `count` of them from number `first` on, as columns: (channels, POINTS), the rest zero.
template <class T>
void gather(const Points<T>& of, int64_t length, int64_t first, int64_t count, int64_t channels, T* tile) {
  int64_t event = first / length, place = first % length;
  for (int64_t p = 0; p < POINTS; ++p) {
    const bool there = p < count;
    const T* source = of.data + event * of.event_stride + place * of.place_stride;
    for (int64_t c = 0; c < channels; ++c) tile[c * POINTS + p] = there ? source[c * of.channel_stride] : T(0);
    if (there && ++place == length) {
      place = 0;
      ++event;
    }
  }
}

// Rows of a tile, as they come out of a product, to (event, channels, length), contiguous.
template <class T>
void scatter(const T* tile, int64_t columns, int64_t length, int64_t first, int64_t count, int64_t channels, T* out) {
  int64_t event = first / length, place = first % length;
  for (int64_t p = 0; p < count; ++p) {
    for (int64_t c = 0; c < channels; ++c) out[(event * channels + c) * length + place] = tile[p * columns + c];
    if (++place == length) {
      place = 0;
      ++event;
    }
  }
}

// The first hidden values of the points in `x`, whose last row is ones, the bias's.
template <class T>
void first_hidden(const Perceptron<T>& net, const T* x, const T* zeros, T* hidden) {
  multiply(POINTS, net.wide, net.inputs + 1, x, 1, POINTS, net.first, zeros, 0, hidden);
  activate(net.bounded, hidden, POINTS * net.wide);
}

// Forward for the tiles from `begin` to `end`; `hidden` keeps the second hidden values if it is not null.
template <class T>
void forward_tiles(const Perceptron<T>& net, const Points<T>& x, T* hidden, T* y, int64_t begin, int64_t end) {
  Scratch<T> scratch;
  T* const columns = scratch.ones((net.inputs + 1) * POINTS);
  T* const hidden1 = scratch.zeros(POINTS * net.wide);
  T* const own = scratch.zeros(POINTS * net.wide);
  T* const out = scratch.zeros(POINTS * net.wide_out);
  const T* const zeros = scratch.zeros(net.wide);
  for (int64_t tile = begin; tile < end; ++tile) {
    const int64_t first = tile * POINTS, count = std::min(POINTS, net.points - first);
    T* const hidden2 = hidden == nullptr ? own : hidden + first * net.wide;
    gather(x, net.length, first, count, net.inputs, columns);
    first_hidden(net, columns, zeros, hidden1);
    multiply(POINTS, net.wide, net.width, hidden1, net.wide, 1, net.second, net.bias2, 0, hidden2);
    activate(net.bounded, hidden2, POINTS * net.wide);
    multiply(POINTS, net.wide_out, net.width, hidden2, net.wide, 1, net.third, net.bias3, 0, out);
    scatter(out, net.wide_out, net.length, first, count, net.outputs, y);
  }
}

// Backward for the same; adds to `sums`.
template <class T>
void backward_tiles(
    const Perceptron<T>& net, const Points<T>& x, const Points<T>& gradient, const T* hidden, T* of_x,
    const Sums<T>& sums, int64_t begin, int64_t end) {
  Scratch<T> scratch;
  T* const columns = scratch.ones((net.inputs + 1) * POINTS);
  T* const seed = scratch.zeros(net.outputs * POINTS);
  T* const hidden1 = scratch.zeros(POINTS * net.wide);
  T* const of_hidden1 = scratch.zeros(POINTS * net.wide);
  T* const of_hidden2 = scratch.zeros(POINTS * net.wide);
  T* const of_columns = scratch.zeros(POINTS * net.wide_in);
  const T* const zeros = scratch.zeros(std::max(net.wide, net.wide_in));
  const T* const one = scratch.ones(1);
  for (int64_t tile = begin; tile < end; ++tile) {
    const int64_t first = tile * POINTS, count = std::min(POINTS, net.points - first);
    const T* const hidden2 = hidden + first * net.wide;
    gather(x, net.length, first, count, net.inputs, columns);
    gather(gradient, net.length, first, count, net.outputs, seed);
    first_hidden(net, columns, zeros, hidden1);
    for (int64_t o = 0; o < net.outputs; ++o) {
      T sum(0);  // of the tile first: one long sum would have larger rounding errors
      for (int64_t p = 0; p < count; ++p) sum += seed[o * POINTS + p];
      sums.bias3[o] += sum;
    }
    multiply(net.outputs, net.wide, POINTS, seed, POINTS, 1, hidden2, sums.third, net.wide, sums.third);
    multiply(POINTS, net.wide, net.outputs, seed, 1, POINTS, net.third_rows, zeros, 0, of_hidden2);
    deactivate(net.bounded, hidden2, of_hidden2, POINTS * net.wide);
    multiply(net.width, net.wide, POINTS, of_hidden2, 1, net.wide, hidden1, sums.second, net.wide, sums.second);
    multiply(int64_t(1), net.wide, POINTS, one, 0, 0, of_hidden2, sums.bias2, net.wide, sums.bias2);
    multiply(POINTS, net.wide, net.width, of_hidden2, net.wide, 1, net.second_rows, zeros, 0, of_hidden1);
    deactivate(net.bounded, hidden1, of_hidden1, POINTS * net.wide);
    multiply(net.inputs + 1, net.wide, POINTS, columns, POINTS, 1, of_hidden1, sums.first, net.wide, sums.first);
    multiply(POINTS, net.wide_in, net.width, of_hidden1, net.wide, 1, net.first_rows, zeros, 0, of_columns);
    scatter(of_columns, net.wide_in, net.length, first, count, net.inputs, of_x);
  }
}
