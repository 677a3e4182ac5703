// A perceptron of three layers over tiles of points, forward and backward, as products with small matrices that stay
// in the first-level cache.
//
// Included by simd/each.h, in the namespace of an instruction set, with INVERTBENCH_BYTES: no include guard.
// A tile has a row of POINTS numbers for each channel or hidden unit, so that vectors hold neighbouring points: no
// number of units needs padding, and positions that are consecutive in memory stay so.

#include "simd/exp.h"
#include "simd/columns.h"

// For `transpose`: its vectors are other types than those of exp.h.
namespace square {
#include "simd/simd.h"
}

// The product of `a` with a tile (see simd/columns.h). `a` has `rows` rows and `depth` columns, or is the transpose of
// such a matrix.
template <class T, class Finish>
INVERTBENCH_INLINE void multiply_tile(
    int64_t rows, int64_t depth, const T* a, bool transposed, const T* tile, const Finish& finish) {
  const int64_t a_row = transposed ? 1 : depth, a_column = transposed ? rows : 1;
  for (int64_t n = 0; n < POINTS; n += 3 * LANES<T>) {
    multiply_columns<T, 3>(rows, a, a_row, a_column, tile + n, POINTS, depth,
                           [&](int64_t m, int64_t column, V<T> sum) { finish(m, m * POINTS + n + column, sum); });
  }
}

// z between -bound and bound, NaN for NaN.
INVERTBENCH_INLINE V<float> clamp(V<float> z, float bound) {
  const V<float> high = V<float>{} + bound, low = -high;
#if INVERTBENCH_BYTES == 64
  return (V<float>)_mm512_max_ps((__m512)low, _mm512_min_ps((__m512)high, (__m512)z));
#else
  z = z > high ? high : z;
  return z < low ? low : z;
#endif
}

// a / b to one unit in the last place. The division of wide vectors takes longer than all the rest of tanh.
INVERTBENCH_INLINE V<float> divide(V<float> a, V<float> b) {
#if INVERTBENCH_BYTES == 64
  const V<float> rough = (V<float>)_mm512_rcp14_ps((__m512)b), near = rough + rough * (1 - b * rough);
  return a * near;
#else
  return a / b;
#endif
}

// tanh z = e / (e + 2) with e = exp(2 z) - 1, to a few units in the last place, also where z is small. NaN stays NaN.
INVERTBENCH_INLINE V<double> tanh_of(V<double> z) {
  const V<double> e = expm1_of<double>(z + z);
  return e / (e + 2);
}

// The same with less accuracy in exp where it has no effect on the quotient, and with a polynomial in z instead of 2 z:
// 1 + y / 2 + ... is (exp y - 1) / y to 2^-26 of its value, with the least largest error on [-log 2 / 2, log 2 / 2].
INVERTBENCH_INLINE V<float> tanh_of(V<float> z) {
  using Of = VectorOf<float>;
  using I = typename Of::I;
  z = clamp(z, 10);  // beyond, tanh is 1
  // See expm1_of; here the last bits of the sum are those of the exponent of 2^n.
  constexpr float to_nearest = VectorOf<float>::to_nearest + 127;
  const V<float> shifted = z * (2 * 1.44269504F) + to_nearest, n = shifted - to_nearest;
  const V<float> r = z - n * 0.34657359F, power = (V<float>)((VectorOf<float>::I)shifted << VectorOf<float>::mantissa);
  V<float> series = V<float>{} + 64 * 0x1.6d990cp-10F;
  series = series * r + 32 * 0x1.1227fep-7F;
  series = series * r + 16 * 0x1.555486p-5F;
  series = series * r + 8 * 0x1.5554b0p-3F;
  series = series * r + 4 * 0x1.0p-1F;
  series = (series * r + 2.0F) * r;
  const V<float> e = power * series + (power - 1);
  return divide(e, e + 2);
}

template <class T>
INVERTBENCH_INLINE V<T>& at(T* values, int64_t i) {
  return *reinterpret_cast<V<T>*>(values + i);
}
template <class T>
INVERTBENCH_INLINE const V<T>& at(const T* values, int64_t i) {
  return *reinterpret_cast<const V<T>*>(values + i);
}

// hidden = activation(weight x + bias), `rows` rows from `depth`.
template <class T>
void forward_layer(bool bounded, int64_t rows, int64_t depth, const T* weight, const T* bias, const T* x, T* hidden) {
  if (bounded) {
    multiply_tile(rows, depth, weight, false, x,
                  [&](int64_t m, int64_t i, V<T> sum) { at(hidden, i) = sum + bias[m]; });
    for (int64_t i = 0; i < rows * POINTS; i += LANES<T>) at(hidden, i) = tanh_of(at(hidden, i));
  } else {
    multiply_tile(rows, depth, weight, false, x, [&](int64_t m, int64_t i, V<T> sum) {
      const V<T> z = sum + bias[m];
      at(hidden, i) = z < T(0) ? V<T>{} : z;
    });
  }
}

// The gradient of `hidden`'s pre-activation values, in terms of `hidden`, from that of the next layer.
template <class T>
void backward_layer(bool bounded, int64_t rows, int64_t depth, const T* weight, const T* of_next, const T* hidden,
                    T* gradient) {
  if (bounded) {
    multiply_tile(rows, depth, weight, true, of_next, [&](int64_t, int64_t i, V<T> sum) {
      const V<T> h = at(hidden, i);
      at(gradient, i) = sum * (T(1) - h * h);
    });
  } else {
    multiply_tile(rows, depth, weight, true, of_next, [&](int64_t, int64_t i, V<T> sum) {
      at(gradient, i) = at(hidden, i) <= T(0) ? V<T>{} : sum;
    });
  }
}

// The points of a tile, `count` of them from number `first` on, a row for each channel; the rest zero.
template <class T>
void gather(const Points<T>& of, int64_t length, int64_t first, int64_t count, int64_t channels, T* tile) {
  if (count < POINTS) std::fill(tile, tile + channels * POINTS, T(0));
  for (int64_t p = 0; p < count;) {
    const int64_t event = (first + p) / length, place = (first + p) % length, run = std::min(count - p, length - place);
    const T* from = of.data + event * of.event_stride + place * of.place_stride;
    T* to = tile + p;
    for (int64_t c = 0; c < channels; ++c, from += of.channel_stride, to += POINTS) {
      if (of.place_stride == 1) {
        std::copy(from, from + run, to);
      } else {
        for (int64_t i = 0; i < run; ++i) to[i] = from[i * of.place_stride];
      }
    }
    p += run;
  }
}

// Request the points of the tile that begins with number `first`, as far as they belong to one event.
template <class T>
INVERTBENCH_INLINE void prefetch_points(const Points<T>& of, int64_t length, int64_t first, int64_t channels) {
  const T* from = of.data + first / length * of.event_stride + first % length * of.place_stride;
  for (int64_t c = 0; c < channels; ++c, from += of.channel_stride) prefetch(from, POINTS);
}

// Rows of a tile to (event, channels, length) with contiguous places and channels, or ADD them there.
template <bool ADD, class T>
void scatter(const T* tile, int64_t length, int64_t first, int64_t count, int64_t channels, int64_t event_stride,
             T* out) {
  for (int64_t p = 0; p < count;) {
    const int64_t event = (first + p) / length, place = (first + p) % length, run = std::min(count - p, length - place);
    T* to = out + event * event_stride + place;
    for (int64_t c = 0; c < channels; ++c, to += length) {
      const T* from = tile + c * POINTS + p;
      if constexpr (ADD) {
        for (int64_t i = 0; i < run; ++i) to[i] += from[i];
      } else {
        std::copy(from, from + run, to);
      }
    }
    p += run;
  }
}

// Points become rows, of `wide` numbers, whole vectors.
template <class T>
void transpose_tile(const T* tile, int64_t wide, T* rows) {
  constexpr int L = LANES<T>;
  for (int64_t m = 0; m < wide; m += L) {
    for (int64_t p = 0; p < POINTS; p += L) {
      square::V<T> block[L];
      _Pragma("GCC unroll 16")
      for (int i = 0; i < L; ++i) std::memcpy(block + i, tile + (m + i) * POINTS + p, sizeof block[i]);
      square::transpose<T>(block);
      _Pragma("GCC unroll 16")
      for (int i = 0; i < L; ++i) std::memcpy(rows + (p + i) * wide + m, block + i, sizeof block[i]);
    }
  }
}

// Add the sum over the points of a product of rows to `sums`, for every pair of rows, still a vector each: `add_lanes`
// adds up the lanes once, after all tiles.
template <class T, int ROWS>
void correlate_block(const T* a, int64_t columns, const T* b, T* sums) {
  constexpr int VECTORS = int(POINTS) / LANES<T>;
  V<T> own[ROWS][VECTORS];  // a compiler would read a again after every store to the sums
  _Pragma("GCC unroll 8")
  for (int m = 0; m < ROWS; ++m) {
    _Pragma("GCC unroll 24")
    for (int v = 0; v < VECTORS; ++v) own[m][v] = at(a, m * POINTS + v * LANES<T>);
  }
  for (int64_t n = 0; n < columns; ++n, b += POINTS) {
    V<T> found[ROWS] = {};
    _Pragma("GCC unroll 24")
    for (int v = 0; v < VECTORS; ++v) {
      const V<T> value = at(b, v * LANES<T>);
      _Pragma("GCC unroll 8")
      for (int m = 0; m < ROWS; ++m) found[m] += own[m][v] * value;
    }
    _Pragma("GCC unroll 8")
    for (int m = 0; m < ROWS; ++m) at(sums, (m * columns + n) * LANES<T>) += found[m];
  }
}

template <class T>
void correlate(int64_t rows, const T* a, int64_t columns, const T* b, T* sums) {
  int64_t m = 0;
  for (; m + 4 <= rows; m += 4) correlate_block<T, 4>(a + m * POINTS, columns, b, sums + m * columns * LANES<T>);
  for (; m + 2 <= rows; m += 2) correlate_block<T, 2>(a + m * POINTS, columns, b, sums + m * columns * LANES<T>);
  if (m < rows) correlate_block<T, 1>(a + m * POINTS, columns, b, sums + m * columns * LANES<T>);
}

// Add the sum over the points of every row in the same way.
template <class T>
void add_points(int64_t rows, const T* a, T* sums) {
  for (int64_t m = 0; m < rows; ++m, a += POINTS) {
    V<T> sum = at(a, 0);
    _Pragma("GCC unroll 24")
    for (int64_t p = LANES<T>; p < POINTS; p += LANES<T>) sum += at(a, p);
    at(sums, m * LANES<T>) += sum;
  }
}

// Forward for the tiles from `begin` to `end`; `hidden` keeps the second hidden values, tile after tile, if it is not
// null.
template <class T>
void forward_tiles(const Perceptron<T>& net, const Points<T>& x, T* hidden, T* y, int64_t begin, int64_t end) {
  Scratch<T> scratch;
  const int64_t size = net.width * POINTS;
  T* const inputs = scratch.zeros(net.inputs * POINTS);
  T* const hidden1 = scratch.zeros(size);
  T* const own = scratch.zeros(hidden == nullptr ? size : 0);
  T* const out = scratch.zeros(net.outputs * POINTS);
  for (int64_t tile = begin; tile < end; ++tile) {
    const int64_t first = tile * POINTS, count = std::min(POINTS, net.points - first);
    T* const hidden2 = hidden == nullptr ? own : hidden + tile * size;
    gather(x, net.length, first, count, net.inputs, inputs);
    forward_layer(net.bounded, net.width, net.inputs, net.weight1, net.bias1, inputs, hidden1);
    forward_layer(net.bounded, net.width, net.width, net.weight2, net.bias2, hidden1, hidden2);
    multiply_tile(net.outputs, net.width, net.weight3, false, hidden2,
                  [&](int64_t m, int64_t i, V<T> sum) { at(out, i) = sum + net.bias3[m]; });
    scatter<false>(out, net.length, first, count, net.outputs, net.outputs * net.length, y);
  }
}

// Backward for the same; adds to `sums`, and to the gradient of x, whose events are `of_x_stride` apart.
template <class T>
void backward_tiles(
    const Perceptron<T>& net, const Points<T>& x, const Points<T>& gradient, const T* hidden, T* of_x,
    int64_t of_x_stride, const Sums<T>& sums, int64_t begin, int64_t end) {
  Scratch<T> scratch;
  const int64_t size = net.width * POINTS, wide = sums.wide, part = size / 4;
  T* const inputs = scratch.zeros(net.inputs * POINTS);
  T* const seed = scratch.zeros(net.outputs * POINTS);
  T* const hidden1 = scratch.zeros(wide * POINTS);
  T* const rows1 = scratch.zeros(wide * POINTS);
  T* const of_hidden1 = scratch.zeros(size);
  T* const of_hidden2 = scratch.zeros(size);
  T* const of_inputs = scratch.zeros(net.inputs * POINTS);
  T* const lanes1 = scratch.zeros(net.inputs * net.width * LANES<T>);
  T* const lanes3 = scratch.zeros(net.outputs * net.width * LANES<T>);
  T* const lanes_bias1 = scratch.zeros(net.width * LANES<T>);
  T* const lanes_bias2 = scratch.zeros(net.width * LANES<T>);
  T* const lanes_bias3 = scratch.zeros(net.outputs * LANES<T>);
  for (int64_t tile = begin; tile < end; ++tile) {
    const int64_t first = tile * POINTS, count = std::min(POINTS, net.points - first);
    const T *const hidden2 = hidden + tile * size, *const ahead = hidden2 + size;  // of this tile and the next
    prefetch(ahead, part);
    gather(x, net.length, first, count, net.inputs, inputs);
    gather(gradient, net.length, first, count, net.outputs, seed);
    forward_layer(net.bounded, net.width, net.inputs, net.weight1, net.bias1, inputs, hidden1);
    backward_layer(net.bounded, net.width, net.outputs, net.weight3, seed, hidden2, of_hidden2);
    correlate(net.outputs, seed, net.width, hidden2, lanes3);
    add_points(net.outputs, seed, lanes_bias3);
    prefetch(ahead + part, part);
    transpose_tile(hidden1, wide, rows1);
    const auto add = [&](int64_t n) {
      return [&sums, n](int64_t m, int64_t i, V<T> sum) { at(sums.weight2, m * sums.wide + n + i) += sum; };
    };
    int64_t n = 0;
    for (; n + 3 * LANES<T> <= wide && n + 4 * LANES<T> != wide; n += 3 * LANES<T>) {
      multiply_columns<T, 3>(net.width, of_hidden2, POINTS, 1, rows1 + n, wide, POINTS, add(n));
    }
    for (; n + 2 * LANES<T> <= wide; n += 2 * LANES<T>) {
      multiply_columns<T, 2>(net.width, of_hidden2, POINTS, 1, rows1 + n, wide, POINTS, add(n));
    }
    if (n < wide) multiply_columns<T, 1>(net.width, of_hidden2, POINTS, 1, rows1 + n, wide, POINTS, add(n));
    prefetch(ahead + 2 * part, part);
    prefetch_points(x, net.length, first + POINTS, net.inputs);
    add_points(net.width, of_hidden2, lanes_bias2);
    backward_layer(net.bounded, net.width, net.width, net.weight2, of_hidden2, hidden1, of_hidden1);
    prefetch(ahead + 3 * part, part);
    prefetch_points(gradient, net.length, first + POINTS, net.outputs);
    correlate(net.inputs, inputs, net.width, of_hidden1, lanes1);
    add_points(net.width, of_hidden1, lanes_bias1);
    multiply_tile(net.inputs, net.width, net.weight1, true, of_hidden1,
                  [&](int64_t, int64_t i, V<T> sum) { at(of_inputs, i) = sum; });
    scatter<true>(of_inputs, net.length, first, count, net.inputs, of_x_stride, of_x);
  }
  // `lanes1` is (inputs, width), the weight the other way round.
  for (int64_t c = 0; c < net.inputs; ++c) {
    for (int64_t m = 0; m < net.width; ++m) {
      add_lanes(lanes1 + (c * net.width + m) * LANES<T>, 1, sums.weight1 + m * net.inputs + c);
    }
  }
  add_lanes(lanes_bias1, net.width, sums.bias1);
  add_lanes(lanes_bias2, net.width, sums.bias2);
  add_lanes(lanes3, net.outputs * net.width, sums.weight3);
  add_lanes(lanes_bias3, net.outputs, sums.bias3);
}
