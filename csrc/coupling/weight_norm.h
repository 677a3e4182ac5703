// Weight-normalised convolutions, weight = gain * direction / |direction| per output channel, in the order in which
// products read them, and the gradients of gain and direction.
//
// Included by simd/each.h, in the namespace of an instruction set: no include guard.

// In double precision, as several sums, which the compiler computes as vectors.
template <class T>
double inner_product(const T* a, const T* b, int64_t count) {
  constexpr int64_t SOME = 8;
  double sums[SOME] = {};
  int64_t i = 0;
  for (; i + SOME <= count; i += SOME) {
    for (int64_t j = 0; j < SOME; ++j) sums[j] += double(a[i + j]) * double(b[i + j]);
  }
  for (; i < count; ++i) sums[0] += double(a[i]) * double(b[i]);
  double sum = 0;
  for (const double one : sums) sum += one;
  return sum;
}

// Calls each(output, number of the entry in `direction`, number in `order`) for the outputs from `begin` to `end`.
template <class T, class Each>
void for_entries(const WeightNorm<T>& of, const Order& order, int64_t begin, int64_t end, const Each& each) {
  for (int64_t input = 0; input < of.inputs; ++input) {
    for (int64_t tap = 0; tap < of.taps; ++tap) {
      const int64_t from = input * of.taps + tap;
      const int64_t to = input * order.by_input + (order.turned ? of.taps - 1 - tap : tap) * order.by_tap;
      for (int64_t output = begin; output < end; ++output) {
        each(output, output * of.row() + from, output * order.by_output + to);
      }
    }
  }
}

template <class T>
double norm(const WeightNorm<T>& of, int64_t output) {
  const T* const v = of.direction + output * of.row();
  return std::sqrt(inner_product(v, v, of.row()));
}

// The weights of the outputs from `begin` to `end`, at most TOGETHER.
template <class T>
void pack(const WeightNorm<T>& of, const Order& order, T* to, int64_t begin, int64_t end) {
  T scales[TOGETHER];
  for (int64_t output = begin; output < end; ++output) scales[output - begin] = T(of.gain[output] / norm(of, output));
  for_entries(of, order, begin, end, [&](int64_t output, int64_t entry, int64_t at) {
    to[at] = scales[output - begin] * of.direction[entry];
  });
}

// The gradients of gain and direction from that of the weight, which is in `order`, for the same.
template <class T>
void unpack_gradients(const WeightNorm<T>& of, const Order& order, const T* of_weight, T* of_gain, T* of_direction,
                      int64_t begin, int64_t end) {
  for_entries(of, order, begin, end, [&](int64_t, int64_t entry, int64_t at) { of_direction[entry] = of_weight[at]; });
  for (int64_t output = begin; output < end; ++output) {
    const T* const v = of.direction + output * of.row();
    T* const g = of_direction + output * of.row();
    const double size = norm(of, output), along = inner_product(g, v, of.row()) / size;
    of_gain[output] = T(along);
    const T scale = T(of.gain[output] / size), back = T(along / size);
    for (int64_t i = 0; i < of.row(); ++i) g[i] = scale * (g[i] - back * v[i]);
  }
}
