// `invertbench::spectral_log_det`, on a processor: log|det| of a circular convolution of few channels, the sum over all
// frequencies f of log|det W(f)|, W(f) = sum over t of w[t] exp(i angle(f, t)). The weight is real, so only half of the
// frequencies along the last axis are computed; those that stand for two count twice. Matrices of few channels take
// less time than the calls of a library's operators.
//
// The gradient of w[o, i, t] is the sum over f of Re(W(f)^-1[i, o] exp(i angle(f, t))). Its derivatives are those of
// PyTorch's operators.

#include "convolution/operators.h"

#include <cmath>
#include <limits>
#include <utility>

#include "operands.h"

namespace invertbench::spectrum {
namespace {

constexpr int64_t SLABS = 8;  // parts of the frequencies, whose sums are added in their order
constexpr int64_t PRODUCTS_WORTH_A_THREAD = 100000;

// A complex matrix, row by row: all real parts, then all imaginary ones.
struct Complex {
  explicit Complex(int64_t size) : size(size), real(size * size), imaginary(size * size) {}
  int64_t size;
  std::vector<double> real, imaginary;

  double norm(int64_t at) const { return real[at] * real[at] + imaginary[at] * imaginary[at]; }
  // Row i += (u + v i) times row k, from column `first` on.
  void add(int64_t i, double u, double v, int64_t k, int64_t first) {
    double *const a = real.data() + i * size, *const b = imaginary.data() + i * size;
    const double *const c = real.data() + k * size, *const d = imaginary.data() + k * size;
    for (int64_t j = first; j < size; ++j) {
      a[j] += u * c[j] - v * d[j];
      b[j] += u * d[j] + v * c[j];
    }
  }
};

// Replace a matrix by its inverse, if that is asked for, of NaN if it is singular; return log|det|. Gauss-Jordan
// elimination with the largest pivot of every column.
double eliminate(Complex& a, bool invert) {
  const int64_t n = a.size;
  std::vector<int64_t> pivots(n);
  double log_det = 0;
  for (int64_t k = 0; k < n; ++k) {
    int64_t& pivot = pivots[k] = k;
    for (int64_t i = k + 1; i < n; ++i) {
      if (a.norm(i * n + k) > a.norm(pivot * n + k)) pivot = i;
    }
    for (std::vector<double>* part : {&a.real, &a.imaginary}) {
      if (pivot != k) std::swap_ranges(part->begin() + k * n, part->begin() + (k + 1) * n, part->begin() + pivot * n);
    }
    const double u = a.real[k * n + k], v = a.imaginary[k * n + k], norm = u * u + v * v;
    if (norm == 0) {
      std::fill(a.real.begin(), a.real.end(), std::numeric_limits<double>::quiet_NaN());
      std::fill(a.imaginary.begin(), a.imaginary.end(), std::numeric_limits<double>::quiet_NaN());
      return -std::numeric_limits<double>::infinity();
    }
    log_det += 0.5 * std::log(norm);
    a.real[k * n + k] = 1;
    a.imaginary[k * n + k] = 0;
    const int64_t first = invert ? 0 : k + 1;  // columns, and rows, that are still needed
    for (int64_t j = first; j < n; ++j) {
      const double c = a.real[k * n + j], d = a.imaginary[k * n + j];
      a.real[k * n + j] = (c * u + d * v) / norm;
      a.imaginary[k * n + j] = (d * u - c * v) / norm;
    }
    for (int64_t i = first; i < n; ++i) {
      if (i == k) continue;
      const double x = -a.real[i * n + k], y = -a.imaginary[i * n + k];
      a.real[i * n + k] = a.imaginary[i * n + k] = 0;
      a.add(i, x, y, k, first);
    }
  }
  for (int64_t k = n - 1; invert && k >= 0; --k) {  // exchanged rows are columns of the inverse
    for (int64_t i = 0; pivots[k] != k && i < n; ++i) {
      std::swap(a.real[i * n + k], a.real[i * n + pivots[k]]);
      std::swap(a.imaginary[i * n + k], a.imaginary[i * n + pivots[k]]);
    }
  }
  return log_det;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> examine(const at::Tensor& weight, const at::Tensor& waves, int64_t width,
                                           bool keep) {
  const int64_t channels = weight.size(0), pairs = channels * channels, taps = weight[0][0].numel();
  TORCH_CHECK_VALUE(weight.size(1) == channels && waves.dim() == 3 && waves.size(0) == 2 && waves.size(2) == taps &&
                        waves.scalar_type() == at::kDouble && width > 0,
                    "spectral_log_det: waves of shape ", waves.sizes(), " do not fit a weight of shape ",
                    weight.sizes());
  at::Tensor value = at::empty({}, weight.options());
  at::Tensor slope = at::empty({keep ? weight.numel() : 0}, weight.options());
  const at::Tensor given = weight.contiguous(), angles = waves.contiguous();
  in_precision("spectral_log_det", weight, {}, [&](auto zero) {
    using T = decltype(zero);
    const int64_t frequencies = waves.size(1), work = frequencies * (channels + 2 * taps) * pairs;
    const double *const cosines = angles.const_data_ptr<double>(), *const sines = cosines + frequencies * taps;
    const T* const w = given.const_data_ptr<T>();
    std::vector<double> turned(taps * pairs);  // (taps, channels, channels)
    for (int64_t pair = 0; pair < pairs; ++pair) {
      for (int64_t t = 0; t < taps; ++t) turned[t * pairs + pair] = w[pair * taps + t];
    }
    const int64_t slabs = std::clamp<int64_t>(work / PRODUCTS_WORTH_A_THREAD, 1, std::min(SLABS, frequencies));
    std::vector<double> totals(slabs), slopes(keep ? slabs * taps * pairs : 0);  // of transposed matrices
    at::parallel_for(0, slabs, 1, [&](int64_t begin, int64_t end) {
      Complex matrix(channels);
      for (int64_t slab = begin; slab < end; ++slab) {
        for (int64_t f = slab * frequencies / slabs; f < (slab + 1) * frequencies / slabs; ++f) {
          std::fill(matrix.real.begin(), matrix.real.end(), 0);
          std::fill(matrix.imaginary.begin(), matrix.imaginary.end(), 0);
          for (int64_t t = 0; t < taps; ++t) {
            const double c = cosines[f * taps + t], s = sines[f * taps + t];
            const double* const part = turned.data() + t * pairs;
            for (int64_t pair = 0; pair < pairs; ++pair) matrix.real[pair] += c * part[pair];
            for (int64_t pair = 0; pair < pairs; ++pair) matrix.imaginary[pair] += s * part[pair];
          }
          const double count = count_of(f, width);
          totals[slab] += count * eliminate(matrix, keep);
          for (int64_t t = 0; keep && t < taps; ++t) {
            const double c = count * cosines[f * taps + t], s = count * sines[f * taps + t];
            double* const sum = slopes.data() + (slab * taps + t) * pairs;
            for (int64_t pair = 0; pair < pairs; ++pair) {
              sum[pair] += c * matrix.real[pair] - s * matrix.imaginary[pair];
            }
          }
        }
      }
    });
    double total = 0;
    for (int64_t slab = 0; slab < slabs; ++slab) {
      total += totals[slab];
      for (int64_t i = 0; slab > 0 && keep && i < taps * pairs; ++i) slopes[i] += slopes[slab * taps * pairs + i];
    }
    *value.data_ptr<T>() = T(total);
    for (int64_t o = 0; keep && o < channels; ++o) {
      for (int64_t i = 0; i < channels; ++i) {
        T* const to = slope.data_ptr<T>() + (o * channels + i) * taps;
        for (int64_t t = 0; t < taps; ++t) to[t] = T(slopes[t * pairs + i * channels + o]);
      }
    }
  });
  return {value, keep ? slope.view(weight.sizes()) : slope};
}

at::Tensor spectral_log_det(const at::Tensor& weight, const at::Tensor& waves, int64_t width) {
  return std::get<0>(examine(weight, waves, width, false));
}

TORCH_LIBRARY_FRAGMENT(invertbench, m) {
  m.def("spectral_log_det(Tensor weight, Tensor waves, int width) -> Tensor");
}
TORCH_LIBRARY_IMPL(invertbench, CPU, m) { m.impl("spectral_log_det", TORCH_FN(spectral_log_det)); }

}  // namespace invertbench::spectrum
