// The affine maps of a flow's step, each in one pass over memory, on a processor: ActNorm, (x + shift) exp(log_scale)
// with a shift and a scale for each channel, and the coupling's, x exp(log_scale) + shift of the moved channels beside
// the kept ones. Differentiated in flows/affine.py.
//
// Every event's log-determinant is summed by one thread, and gradients of channels over SLABS parts of the events, in
// their order: the same for any number of threads.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <tuple>
#include <vector>

#include "simd/cpu.h"

#define INVERTBENCH_BODY "affine/rows.h"
#include "simd/each.h"

namespace invertbench {
namespace {

constexpr int64_t SLABS = 32;
constexpr int64_t NUMBERS_WORTH_A_THREAD = 16384;

template <class T>
struct Way {
  decltype(&portable::forward_entries<T>) forward_entries;
  decltype(&portable::backward_entries<T>) backward_entries;
  decltype(&portable::forward_channel<T>) forward_channel;
  decltype(&portable::backward_channel<T>) backward_channel;
};

template <class T>
Way<T> way() {
#define INVERTBENCH_WAY(set) \
  Way<T> { set::forward_entries<T>, set::backward_entries<T>, set::forward_channel<T>, set::backward_channel<T> }
#if defined(__x86_64__)
  switch (instructions()) {
    case Instructions::avx512: return INVERTBENCH_WAY(avx512);
    case Instructions::avx2: return INVERTBENCH_WAY(avx2);
    default: break;
  }
#endif
  return INVERTBENCH_WAY(portable);
#undef INVERTBENCH_WAY
}

// Events (N, channels, *spatial), each contiguous, at any distance from one another.
at::Tensor rows(const at::Tensor& x) {
  return x.size(0) == 0 || x.select(0, 0).is_contiguous() ? x : x.contiguous();
}

template <class T>
struct Rows {
  explicit Rows(const at::Tensor& x) : data(x.const_data_ptr<T>()), stride(x.stride(0)) {}
  const T* operator[](int64_t event) const { return data + event * stride; }
  const T* data;
  int64_t stride;
};

int64_t size_of(const at::Tensor& x) { return x.size(0) == 0 ? 0 : x.numel() / x.size(0); }

int64_t grain(int64_t numbers) { return NUMBERS_WORTH_A_THREAD / std::max<int64_t>(numbers, 1) + 1; }

template <class Run>
void in_precision(const at::Tensor& x, const Run& run) {
  TORCH_CHECK_TYPE(x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble, "affine: x is ", x.scalar_type(),
                   "; use float32 or float64");
  x.scalar_type() == at::kFloat ? run(0.0F) : run(0.0);
}

void check_alike(const at::Tensor& x, std::initializer_list<at::Tensor> others, const char* what) {
  for (const at::Tensor& other : others) {
    TORCH_CHECK_VALUE(other.scalar_type() == x.scalar_type() && other.sizes() == x.sizes(), what, ": ",
                      other.scalar_type(), other.sizes(), " does not fit ", x.scalar_type(), x.sizes());
  }
}

// (N, kept, *spatial) and (N, moved, *spatial) -> (N, kept + moved, *spatial), and the sums of log_scale, (N,).
std::tuple<at::Tensor, at::Tensor> coupling(const at::Tensor& kept, const at::Tensor& moved,
                                            const at::Tensor& log_scale, const at::Tensor& shift) {
  check_alike(moved, {log_scale, shift}, "affine_coupling");
  const at::Tensor k = rows(kept), x = rows(moved), s = rows(log_scale), t = rows(shift);
  std::vector<int64_t> sizes = moved.sizes().vec();
  sizes[1] += kept.size(1);
  at::Tensor y = at::empty(sizes, x.options()), log_det = at::empty({x.size(0)}, x.options());
  in_precision(x, [&](auto zero) {
    using T = decltype(zero);
    const Way<T> set = way<T>();
    const Rows<T> from_k(k), from_x(x), from_s(s), from_t(t);
    const int64_t before = size_of(k), count = size_of(x);
    T* const to = y.data_ptr<T>();
    T* const sums = log_det.data_ptr<T>();
    at::parallel_for(0, x.size(0), grain(count), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        T* const row = to + n * (before + count);
        std::copy(from_k[n], from_k[n] + before, row);
        sums[n] = T(set.forward_entries(count, from_x[n], from_s[n], from_t[n], row + before));
      }
    });
  });
  return {y, log_det};
}

// The gradients of the kept and the moved channels together, for the moved ones as `log_scale` scales them, and of
// `log_scale`; that of `shift` is a part of y's.
std::tuple<at::Tensor, at::Tensor> coupling_backward(const at::Tensor& of_y, const at::Tensor& of_log_det,
                                                     const at::Tensor& moved, const at::Tensor& log_scale) {
  const at::Tensor g = rows(of_y), x = rows(moved), s = rows(log_scale), sums = of_log_det.contiguous();
  at::Tensor of_x = at::empty(of_y.sizes(), x.options()), of_s = at::empty(moved.sizes(), x.options());
  in_precision(x, [&](auto zero) {
    using T = decltype(zero);
    const Way<T> set = way<T>();
    const Rows<T> from_g(g), from_x(x), from_s(s);
    const int64_t all = size_of(g), count = size_of(x), kept = all - count;
    T* const to = of_x.data_ptr<T>();
    at::parallel_for(0, x.size(0), grain(count), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        std::copy(from_g[n], from_g[n] + kept, to + n * all);
        set.backward_entries(count, from_g[n] + kept, sums.const_data_ptr<T>()[n], from_x[n], from_s[n],
                             to + n * all + kept, of_s.data_ptr<T>() + n * count);
      }
    });
  });
  return {of_x, of_s};
}

at::Tensor actnorm(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& log_scale) {
  const at::Tensor from = rows(x), by = shift.contiguous(), scale = log_scale.exp();
  at::Tensor y = at::empty(x.sizes(), x.options());
  in_precision(x, [&](auto zero) {
    using T = decltype(zero);
    const Way<T> set = way<T>();
    const Rows<T> from_x(from);
    const int64_t channels = x.size(1), all = size_of(x), count = all / std::max<int64_t>(channels, 1);
    at::parallel_for(0, x.size(0), grain(all), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        for (int64_t c = 0; c < channels; ++c) {
          set.forward_channel(count, from_x[n] + c * count, by.const_data_ptr<T>()[c], scale.const_data_ptr<T>()[c],
                              y.data_ptr<T>() + n * all + c * count);
        }
      }
    });
  });
  return y;
}

// The gradients of x, shift and log_scale.
std::tuple<at::Tensor, at::Tensor, at::Tensor> actnorm_backward(const at::Tensor& of_y, const at::Tensor& x,
                                                                const at::Tensor& shift, const at::Tensor& log_scale) {
  const at::Tensor g = rows(of_y), from = rows(x), by = shift.contiguous(), scale = log_scale.exp();
  at::Tensor of_x = at::empty(x.sizes(), x.options());
  const int64_t channels = x.size(1), all = size_of(x), count = all / std::max<int64_t>(channels, 1);
  const int64_t slabs = std::clamp<int64_t>(x.size(0), 1, SLABS);
  const at::Tensor sums = at::zeros({slabs, 2, channels}, x.options().dtype(at::kDouble));
  in_precision(x, [&](auto zero) {
    using T = decltype(zero);
    const Way<T> set = way<T>();
    const Rows<T> from_g(g), from_x(from);
    at::parallel_for(0, slabs, grain(x.numel() / slabs), [&](int64_t begin, int64_t end) {
      for (int64_t slab = begin; slab < end; ++slab) {
        double* const own = sums.data_ptr<double>() + slab * 2 * channels;
        for (int64_t n = slab * x.size(0) / slabs; n < (slab + 1) * x.size(0) / slabs; ++n) {
          for (int64_t c = 0; c < channels; ++c) {
            set.backward_channel(count, from_g[n] + c * count, from_x[n] + c * count, by.const_data_ptr<T>()[c],
                                 scale.const_data_ptr<T>()[c], of_x.data_ptr<T>() + n * all + c * count, own[c],
                                 own[channels + c]);
          }
        }
      }
    });
  });
  const at::Tensor totals = sums.sum(0).to(x.scalar_type());
  return {of_x, totals[0].clone(), totals[1].clone()};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(invertbench, m) {
  m.def("affine_coupling(Tensor kept, Tensor moved, Tensor log_scale, Tensor shift) -> (Tensor, Tensor)");
  m.def("affine_coupling_backward(Tensor of_y, Tensor of_log_det, Tensor moved, Tensor log_scale) "
        "-> (Tensor, Tensor)");
  m.def("actnorm(Tensor x, Tensor shift, Tensor log_scale) -> Tensor");
  m.def("actnorm_backward(Tensor of_y, Tensor x, Tensor shift, Tensor log_scale) -> (Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(invertbench, CPU, m) {
  m.impl("affine_coupling", TORCH_FN(coupling));
  m.impl("affine_coupling_backward", TORCH_FN(coupling_backward));
  m.impl("actnorm", TORCH_FN(actnorm));
  m.impl("actnorm_backward", TORCH_FN(actnorm_backward));
}

}  // namespace invertbench
