// The weight of a 1x1 convolution of few channels, on a processor: `invertbench::plu`, a matrix from its factors with
// its log-determinant, and `invertbench::log_abs_det` of a matrix, both times the number of positions. Each takes less
// time than one call of a library, of which they would need several. Called by layers/linalg/plu.py.

#include "affine/operators.h"

#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <utility>

#include "operands.h"

namespace invertbench::factors {
namespace {

// a += factor * b, for `count` numbers.
template <class T>
void add_row(int64_t count, T factor, const T* b, T* a) {
  for (int64_t j = 0; j < count; ++j) a[j] += factor * b[j];
}

// The factors of W = P (L o strictly-lower + I) (U o strictly-upper + diag(sign * exp(log_s))), whose row i is row
// permutation[i] of the product.
template <class T>
struct Factors {
  Factors(Factor lower, Factor upper, Factor log_s, Factor sign, Factor permutation)
      : held{lower.contiguous(), upper.contiguous(), log_s.contiguous(), sign.contiguous(), permutation.contiguous()},
        size(lower.size(0)), lower(held[0].const_data_ptr<T>()), log_s(held[2].const_data_ptr<T>()),
        rows(held[4].const_data_ptr<int64_t>()), upper(size * size), diagonal(size) {
    const T *const u = held[1].const_data_ptr<T>(), *const signs = held[3].const_data_ptr<T>();
    for (int64_t i = 0; i < size; ++i) {
      std::copy(u + i * size + i, u + (i + 1) * size, this->upper.begin() + i * size + i);
      this->upper[i * size + i] = diagonal[i] = signs[i] * std::exp(this->log_s[i]);
    }
  }

  const at::Tensor held[5];
  const int64_t size;
  const T *const lower, *const log_s;
  const int64_t* const rows;
  std::vector<T> upper, diagonal;  // U with its diagonal, zeros below
};

void check_factors(Factor lower, Factor upper, Factor log_s, Factor sign, Factor permutation) {
  const bool fits = lower.dim() == 2 && lower.size(0) == lower.size(1) && upper.sizes() == lower.sizes() &&
                    log_s.sizes() == lower.sizes().slice(1) && sign.sizes() == log_s.sizes() &&
                    permutation.sizes() == log_s.sizes() && permutation.scalar_type() == at::kLong;
  TORCH_CHECK_VALUE(fits, "plu: L ", lower.sizes(), ", U ", upper.sizes(), ", log_s ", log_s.sizes(), ", signs ",
                    sign.sizes(), " and a permutation ", permutation.sizes(), " of ", permutation.scalar_type(),
                    " do not fit one another");
}

void check_row(int64_t row, int64_t size) {
  TORCH_CHECK_INDEX(0 <= row && row < size, "plu: row ", row, " of a permutation of ", size);
}

// Replaces a matrix by its inverse, if that is asked for, of NaN if it is singular; returns log|det|. Gauss-Jordan
// elimination with the largest pivot of every column, in double precision.
double eliminate(int64_t n, double* a, bool invert) {
  std::vector<int64_t> pivots(n);
  double log_det = 0;
  for (int64_t k = 0; k < n; ++k) {
    int64_t& pivot = pivots[k] = k;
    for (int64_t i = k + 1; i < n; ++i) {
      if (std::abs(a[i * n + k]) > std::abs(a[pivot * n + k])) pivot = i;
    }
    double* const row = a + k * n;
    if (pivot != k) std::swap_ranges(row, row + n, a + pivot * n);
    if (row[k] == 0) {
      std::fill(a, a + n * n, std::numeric_limits<double>::quiet_NaN());
      return -std::numeric_limits<double>::infinity();
    }
    log_det += std::log(std::abs(row[k]));
    const double scale = 1 / row[k];
    row[k] = 1;
    const int64_t first = invert ? 0 : k + 1;  // columns that are still needed
    for (int64_t j = first; j < n; ++j) row[j] *= scale;
    for (int64_t i = first; i < n; ++i) {
      if (i == k) continue;
      const double factor = -a[i * n + k];
      a[i * n + k] = 0;
      add_row(n - first, factor, row + first, a + i * n + first);
    }
  }
  for (int64_t k = n - 1; invert && k >= 0; --k) {  // exchanged rows are columns of the inverse
    for (int64_t i = 0; pivots[k] != k && i < n; ++i) std::swap(a[i * n + k], a[i * n + pivots[k]]);
  }
  return log_det;
}

}  // namespace

Pair plu(Factor lower, Factor upper, Factor log_s, Factor sign, Factor permutation, int64_t positions) {
  check_factors(lower, upper, log_s, sign, permutation);
  at::Tensor weight = at::empty(lower.sizes(), lower.options()), log_det = at::empty({}, lower.options());
  in_precision("plu", lower, {upper, log_s, sign}, [&](auto zero) {
    using T = decltype(zero);
    const Factors<T> of(lower, upper, log_s, sign, permutation);
    const int64_t n = of.size;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = of.rows[i];
      check_row(row, n);
      T* const to = weight.data_ptr<T>() + i * n;
      std::copy_n(of.upper.data() + row * n, n, to);
      for (int64_t k = 0; k < row; ++k) add_row(n - k, of.lower[row * n + k], of.upper.data() + k * n + k, to + k);
    }
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += of.log_s[i];
    *log_det.data_ptr<T>() = T(double(positions) * sum);
  });
  return {weight, log_det};
}

Triple plu_backward(Factor of_weight, Factor of_log_det, Factor lower, Factor upper, Factor log_s, Factor sign,
                    Factor permutation, int64_t positions) {
  check_factors(lower, upper, log_s, sign, permutation);
  TORCH_CHECK_VALUE(of_weight.sizes() == lower.sizes() && of_log_det.numel() == 1, "plu: gradients ",
                    of_weight.sizes(), " and ", of_log_det.sizes(), " do not fit L ", lower.sizes());
  at::Tensor of_lower = at::zeros(lower.sizes(), lower.options()), of_upper = at::zeros(lower.sizes(), lower.options());
  at::Tensor of_log_s = at::empty(log_s.sizes(), log_s.options());
  const at::Tensor given = of_weight.contiguous();
  in_precision("plu", lower, {upper, log_s, sign, given, of_log_det}, [&](auto zero) {
    using T = decltype(zero);
    const Factors<T> of(lower, upper, log_s, sign, permutation);
    const int64_t n = of.size;
    std::vector<T> of_product(n * n);
    for (int64_t i = 0; i < n; ++i) {
      check_row(of.rows[i], n);
      std::copy_n(given.const_data_ptr<T>() + i * n, n, of_product.begin() + of.rows[i] * n);
    }
    T *const to_lower = of_lower.data_ptr<T>(), *const to_upper = of_upper.data_ptr<T>();
    for (int64_t i = 0; i < n; ++i) {
      const T* const g = of_product.data() + i * n;
      add_row(n - i, T(1), g + i, to_upper + i * n + i);
      for (int64_t j = 0; j < i; ++j) {
        T sum(0);
        for (int64_t k = j; k < n; ++k) sum += g[k] * of.upper[j * n + k];
        to_lower[i * n + j] = sum;
        add_row(n - j, of.lower[i * n + j], g + j, to_upper + j * n + j);
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      T& diagonal = to_upper[i * n + i];
      of_log_s.data_ptr<T>()[i] = diagonal * of.diagonal[i] + T(positions) * *of_log_det.const_data_ptr<T>();
      diagonal = T(0);
    }
  });
  return {of_lower, of_upper, of_log_s};
}

Pair eliminated(const at::Tensor& matrix, int64_t positions, bool keep) {
  TORCH_CHECK_VALUE(matrix.dim() == 2 && matrix.size(0) == matrix.size(1), "log_abs_det: a matrix of shape ",
                    matrix.sizes(), " is not square");
  const int64_t n = matrix.size(0);
  at::Tensor value = at::empty({}, matrix.options()), slope = at::empty({keep ? n : 0, n}, matrix.options());
  const at::Tensor from = matrix.contiguous();
  in_precision("log_abs_det", matrix, {}, [&](auto zero) {
    using T = decltype(zero);
    std::vector<double> a(from.const_data_ptr<T>(), from.const_data_ptr<T>() + n * n);
    *value.data_ptr<T>() = T(double(positions) * eliminate(n, a.data(), keep));
    for (int64_t i = 0; i < slope.size(0); ++i) {
      for (int64_t j = 0; j < n; ++j) slope.data_ptr<T>()[i * n + j] = T(double(positions) * a[j * n + i]);
    }
  });
  return {value, slope};
}

at::Tensor log_abs_det(const at::Tensor& matrix, int64_t positions) {
  return std::get<0>(eliminated(matrix, positions, false));
}

TORCH_LIBRARY_FRAGMENT(invertbench, m) {
  m.def("plu(Tensor lower, Tensor upper, Tensor log_s, Tensor sign, Tensor permutation, int positions) -> "
        "(Tensor, Tensor)");
  m.def("plu_backward(Tensor of_weight, Tensor of_log_det, Tensor lower, Tensor upper, Tensor log_s, Tensor sign, "
        "Tensor permutation, int positions) -> (Tensor, Tensor, Tensor)");
  m.def("log_abs_det(Tensor matrix, int positions) -> Tensor");
}
TORCH_LIBRARY_IMPL(invertbench, CPU, m) {
  m.impl("plu", TORCH_FN(plu));
  m.impl("plu_backward", TORCH_FN(plu_backward));
  m.impl("log_abs_det", TORCH_FN(log_abs_det));
}

}  // namespace invertbench::factors
