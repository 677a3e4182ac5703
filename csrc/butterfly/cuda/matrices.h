// The matrices of a butterfly on a device, and their log-determinant.
#pragma once

#include "cuda/block.h"

namespace invertbench {

template <class T>
struct alignas(16) Matrix {
  T a, b, c, d;
};

// The weight of a butterfly, (2, 2, pitch), or the inverses of its matrices.
template <class T>
struct Weights {
  const T* data;
  int64_t pitch;
  bool inverse;
};

template <class T>
INVERTBENCH_DEVICE Matrix<T> inverse_of(const Matrix<T>& m) {
  const T det = m.a * m.d - m.b * m.c;
  return {m.d / det, -m.b / det, -m.c / det, m.a / det};
}

template <class T, class Block>
INVERTBENCH_DEVICE Matrix<T> read_matrix(const Block& block, const Weights<T>& weights, int64_t number) {
  if (number < 0) return {T(0), T(0), T(0), T(0)};
  const T* at = weights.data + number;
  const Matrix<T> m{block.load(at), block.load(at + weights.pitch), block.load(at + 2 * weights.pitch),
                    block.load(at + 3 * weights.pitch)};
  return weights.inverse ? inverse_of(m) : m;
}

constexpr int MOST_RANGES = 24;
constexpr int SUM_THREADS = 256;  // of a block for the log-det alone; at most 512
constexpr int SUMMED = 8;         // matrices for a thread, at least, if there are several such blocks

// Matrices that equally many pairs use.
struct LogDetRange {
  int64_t begin, count;
  double uses;
};

template <class T>
struct LogDetCall {
  Weights<T> weights{};
  LogDetRange range[MOST_RANGES];
  int ranges = 0;
  double* sums = nullptr;  // one for each block,
  T* log_det = nullptr;    // or the result, if there is but one
};

// Add the threads' `terms`, at most 512, into the first, in an order that depends on their number alone.
template <class Block, class Terms>
INVERTBENCH_DEVICE void add_up(Block& block, Terms terms) {
  for (int half = 256; half > 0; half /= 2) {
    block.step([&](int thread, auto&) {
      if (thread < half && thread + half < block.threads()) {
        terms[thread] = double(terms[thread]) + double(terms[thread + half]);
      }
    });
  }
}

// The share of block `number`, of `blocks`: sum over the matrices M of uses log|det M|. One logarithm for a thread's
// determinants of a range together: of their product, with a separate exponent so that it cannot overflow. The
// order of all sums follows from the sizes alone.
template <class T, class Block>
INVERTBENCH_DEVICE void log_det_block(Block& block, const LogDetCall<T>& call, int number, int blocks) {
  constexpr double LOG_2 = 0.693147180559945309417;
  const auto terms = block.template shared<double>(0);
  block.step([&](int thread, auto&) {
    double sum = 0;
    for (int r = 0; r < call.ranges; ++r) {
      const LogDetRange& range = call.range[r];
      double product = 1;
      int64_t exponents = 0;
      INVERTBENCH_BY_EIGHT  // concurrent loads
      for (int64_t i = int64_t(number) * block.threads() + thread; i < range.count;
           i += int64_t(blocks) * block.threads()) {
        const Matrix<T> m = read_matrix(block, call.weights, range.begin + i);
        int exponent = 0;
        product = frexp(product * (double(m.a) * double(m.d) - double(m.b) * double(m.c)), &exponent);
        exponents += exponent;
      }
      sum += range.uses * (log(fabs(product)) + double(exponents) * LOG_2);
    }
    terms[thread] = sum;
  });
  add_up(block, terms);
  block.step([&](int thread, auto&) {
    if (thread > 0) return;
    if (call.log_det != nullptr) block.store(call.log_det, T(double(terms[0])));
    else block.store(call.sums + number, double(terms[0]));
  });
}

template <class T, class Block>
INVERTBENCH_DEVICE void log_det_total(Block& block, const double* sums, int64_t count, T* log_det) {
  const auto terms = block.template shared<double>(0);
  block.step([&](int thread, auto&) {
    double sum = 0;
    for (int64_t i = thread; i < count; i += block.threads()) sum += block.load(sums + i);
    terms[thread] = sum;
  });
  add_up(block, terms);
  block.step([&](int thread, auto&) {
    if (thread == 0) block.store(log_det, T(double(terms[0])));
  });
}

}  // namespace invertbench
