// Scales and shifts of a flow's step, each in one pass over memory, on a processor. `invertbench::actnorm`:
// (x + shift) exp(log_scale) with a shift and a scale for each channel. `invertbench::affine_coupling`: the kept
// channels beside x scale + shift of the moved ones, whose scale is a gate of s, and the sums of the log-scales.
//
// Every event's log-determinant is summed by one thread, and gradients of channels over SLABS parts of the events, in
// their order: the same for any number of threads. The coupling is differentiated in coupling/coupling.cpp. Derivatives
// of ActNorm's gradients are those of PyTorch's operators.

#include "affine/operators.h"

#include <cmath>

#include "operands.h"

namespace invertbench::scales {

#define INVERTBENCH_BODY "affine/scales_rows.h"
#include "simd/each.h"

namespace {

constexpr int64_t SLABS = 32;
constexpr int64_t NUMBERS_WORTH_A_THREAD = 16384;

void check_gate(int64_t gate) {
  TORCH_CHECK_VALUE(0 <= gate && gate < 3, "affine_coupling: gate ", gate,
                    "; use 0 to 2, in the order of flows/affine.py");
}

// (N, kept, *spatial) and (N, moved, *spatial) -> (N, kept + moved, *spatial), and the sums of the log-scales, (N,).
std::tuple<at::Tensor, at::Tensor> coupling(const at::Tensor& kept, const at::Tensor& moved, const at::Tensor& s,
                                            const at::Tensor& shift, int64_t gate) {
  check_gate(gate);
  TORCH_CHECK_VALUE(moved.dim() > 1 && kept.dim() > 1, "affine_coupling: ", moved.sizes(), " has no channels");
  std::vector<int64_t> sizes = moved.sizes().vec();
  sizes[1] = kept.size(1);
  TORCH_CHECK_VALUE(s.sizes() == moved.sizes() && shift.sizes() == moved.sizes() && kept.sizes() == sizes,
                    "affine_coupling: kept channels ", kept.sizes(), ", s ", s.sizes(), " and a shift ",
                    shift.sizes(), " do not fit ", moved.sizes());
  const at::Tensor k = rows(kept), x = rows(moved), g = rows(s), t = rows(shift);
  sizes[1] += moved.size(1);
  at::Tensor y = at::empty(sizes, x.options()), log_det = at::empty({x.size(0)}, x.options());
  in_precision("affine_coupling", x, {k, g, t}, [&](auto zero) {
    using T = decltype(zero);
    const Rows<T> from_k(k), from_x(x), from_s(g), from_t(t);
    const int64_t before = size_of(k), count = size_of(x);
    T* const to = y.data_ptr<T>();
    T* const sums = log_det.data_ptr<T>();
    at::parallel_for(0, x.size(0), grain(count, NUMBERS_WORTH_A_THREAD), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        T* const row = to + n * (before + count);
        std::copy(from_k[n], from_k[n] + before, row);
        sums[n] = T(INVERTBENCH_BEST(FORWARD<T>[gate])(count, from_x[n], from_s[n], from_t[n], row + before));
      }
    });
  });
  return {y, log_det};
}

// The gradients of the kept and the moved channels together, and of s; that of `shift` is a part of y's.
std::tuple<at::Tensor, at::Tensor> coupling_backward(const at::Tensor& of_y, const at::Tensor& of_log_det,
                                                     const at::Tensor& moved, const at::Tensor& s, int64_t gate) {
  check_gate(gate);
  TORCH_CHECK_VALUE(moved.dim() > 1 && s.sizes() == moved.sizes() && of_y.dim() == moved.dim() &&
                        of_y.size(0) == moved.size(0) && of_y.size(1) >= moved.size(1) &&
                        of_y.sizes().slice(2) == moved.sizes().slice(2) && of_log_det.numel() == moved.size(0),
                    "affine_coupling: gradients ", of_y.sizes(), " and ", of_log_det.sizes(), " do not fit ",
                    moved.sizes());
  const at::Tensor g = rows(of_y), x = rows(moved), from = rows(s), sums = of_log_det.contiguous();
  at::Tensor of_x = at::empty(of_y.sizes(), x.options()), of_s = at::empty(moved.sizes(), x.options());
  in_precision("affine_coupling", x, {g, from, sums}, [&](auto zero) {
    using T = decltype(zero);
    const Rows<T> from_g(g), from_x(x), from_s(from);
    const int64_t all = size_of(g), count = size_of(x), kept = all - count;
    T* const to = of_x.data_ptr<T>();
    at::parallel_for(0, x.size(0), grain(count, NUMBERS_WORTH_A_THREAD), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        std::copy(from_g[n], from_g[n] + kept, to + n * all);
        INVERTBENCH_BEST(BACKWARD<T>[gate])(count, from_g[n] + kept, sums.const_data_ptr<T>()[n], from_x[n], from_s[n],
                                            to + n * all + kept, of_s.data_ptr<T>() + n * count);
      }
    });
  });
  return {of_x, of_s};
}

void check_channels(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& log_scale) {
  const bool fits = x.dim() > 1 && shift.sizes() == x.sizes().slice(1, 1) && log_scale.sizes() == shift.sizes();
  TORCH_CHECK_VALUE(fits, "actnorm: a shift ", shift.sizes(), " and a scale ", log_scale.sizes(),
                    " do not fit the channels of ", x.sizes());
}

// exp of every channel's log-scale.
template <class T>
std::vector<T> scales_of(const at::Tensor& log_scale) {
  std::vector<T> made(log_scale.numel());
  const T* const from = log_scale.const_data_ptr<T>();
  for (int64_t c = 0; c < log_scale.numel(); ++c) made[c] = std::exp(from[c * log_scale.stride(0)]);
  return made;
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> actnorm(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& log_scale) {
  check_channels(x, shift, log_scale);
  const at::Tensor from = rows(x), by = shift.contiguous();
  const int64_t channels = x.size(1), all = size_of(x), count = places_of(x);
  at::Tensor y = at::empty(x.sizes(), x.options()), log_det = at::empty({}, x.options());
  in_precision("actnorm", from, {by, log_scale}, [&](auto zero) {
    using T = decltype(zero);
    const Rows<T> from_x(from);
    const std::vector<T> scale = scales_of<T>(log_scale);
    double sum = 0;
    for (int64_t c = 0; c < channels; ++c) sum += log_scale.const_data_ptr<T>()[c * log_scale.stride(0)];
    *log_det.data_ptr<T>() = T(double(count) * sum);
    at::parallel_for(0, x.size(0), grain(all, NUMBERS_WORTH_A_THREAD), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        for (int64_t c = 0; c < channels; ++c) {
          INVERTBENCH_BEST(forward_channel<T>)(count, from_x[n] + c * count, by.const_data_ptr<T>()[c], scale[c],
                                               y.data_ptr<T>() + n * all + c * count);
        }
      }
    });
  });
  return {y, log_det};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> actnorm_backward(const at::Tensor& of_y, const at::Tensor& of_log_det,
                                                                const at::Tensor& x, const at::Tensor& shift,
                                                                const at::Tensor& log_scale) {
  check_channels(x, shift, log_scale);
  TORCH_CHECK_VALUE(of_y.sizes() == x.sizes() && of_log_det.numel() == 1, "actnorm: gradients ", of_y.sizes(), " and ",
                    of_log_det.sizes(), " do not fit ", x.sizes());
  const at::Tensor g = rows(of_y), from = rows(x), by = shift.contiguous();
  const int64_t channels = x.size(1), all = size_of(x), count = places_of(x);
  at::Tensor of_x = at::empty(x.sizes(), x.options());
  at::Tensor of_shift = at::empty({channels}, x.options()), of_log_scale = at::empty({channels}, x.options());
  const int64_t slabs = std::clamp<int64_t>(x.numel() / NUMBERS_WORTH_A_THREAD, 1, std::min(SLABS, x.size(0) + 1));
  std::vector<double> sums(slabs * 2 * channels);
  in_precision("actnorm", from, {g, by, log_scale, of_log_det}, [&](auto zero) {
    using T = decltype(zero);
    const Rows<T> from_g(g), from_x(from);
    const std::vector<T> scale = scales_of<T>(log_scale);
    at::parallel_for(0, slabs, 1, [&](int64_t begin, int64_t end) {
      for (int64_t slab = begin; slab < end; ++slab) {
        double* const own = sums.data() + slab * 2 * channels;
        for (int64_t n = slab * x.size(0) / slabs; n < (slab + 1) * x.size(0) / slabs; ++n) {
          for (int64_t c = 0; c < channels; ++c) {
            INVERTBENCH_BEST(backward_channel<T>)(count, from_g[n] + c * count, from_x[n] + c * count,
                                                  by.const_data_ptr<T>()[c], scale[c],
                                                  of_x.data_ptr<T>() + n * all + c * count, own[c], own[channels + c]);
          }
        }
      }
    });
    const double of_sum = double(count) * double(*of_log_det.const_data_ptr<T>());
    for (int64_t c = 0; c < channels; ++c) {
      double by_shift = 0, by_scale = 0;
      for (int64_t slab = 0; slab < slabs; ++slab) {
        by_shift += sums[slab * 2 * channels + c];
        by_scale += sums[(slab * 2 + 1) * channels + c];
      }
      of_shift.data_ptr<T>()[c] = T(by_shift);
      of_log_scale.data_ptr<T>()[c] = T(by_scale + of_sum);
    }
  });
  return {of_x, of_shift, of_log_scale};
}

TORCH_LIBRARY_FRAGMENT(invertbench, m) {
  m.def("affine_coupling(Tensor kept, Tensor moved, Tensor s, Tensor shift, int gate) -> (Tensor, Tensor)");
  m.def("affine_coupling_backward(Tensor of_y, Tensor of_log_det, Tensor moved, Tensor s, int gate) "
        "-> (Tensor, Tensor)");
  m.def("actnorm(Tensor x, Tensor shift, Tensor log_scale) -> (Tensor, Tensor)");
  m.def("actnorm_backward(Tensor of_y, Tensor of_log_det, Tensor x, Tensor shift, Tensor log_scale) "
        "-> (Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(invertbench, CPU, m) {
  m.impl("affine_coupling", TORCH_FN(coupling));
  m.impl("affine_coupling_backward", TORCH_FN(coupling_backward));
  m.impl("actnorm", TORCH_FN(actnorm));
  m.impl("actnorm_backward", TORCH_FN(actnorm_backward));
}

}  // namespace invertbench::scales
