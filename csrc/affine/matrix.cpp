// `invertbench::mix_channels`, on a processor: one small matrix applied to the channels of every place of a batch.
// Matrix libraries take such products event by event, far from the speed of memory. Derivatives: matrix_gradient.cpp.
//
// The gradient of the matrix is summed over up to SLABS parts of the events, in their order: the same for any number of
// threads.

#include "affine/operators.h"


#include "operands.h"

namespace invertbench::mixing {

#define INVERTBENCH_BODY "affine/matrix_rows.h"
#include "simd/each.h"

namespace {

constexpr int64_t SLABS = 32;
constexpr int64_t PRODUCTS_WORTH_A_THREAD = 100000;

// The sizes of x with other channels.
std::vector<int64_t> sizes_of(const at::Tensor& x, int64_t channels) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[1] = channels;
  return sizes;
}

void check(const at::Tensor& x, const at::Tensor& weight) {
  const bool single = x.scalar_type() == at::kFloat;
  const int64_t least = single ? INVERTBENCH_BEST(LANES<float>) : INVERTBENCH_BEST(LANES<double>);
  TORCH_CHECK_VALUE(x.dim() >= 3 && weight.dim() == 2 && weight.size(1) == x.size(1) && places_of(x) >= least,
                    "mix_channels: x of shape ", x.sizes(), " does not fit a matrix of shape ", weight.sizes(),
                    " and at least ", least, " places");
}

}  // namespace

at::Tensor mix(const at::Tensor& x, const at::Tensor& weight) {
  check(x, weight);
  at::Tensor y = at::empty(sizes_of(x, weight.size(0)), x.options());
  const at::Tensor from = rows(x);
  in_precision("mix_channels", from, {weight}, [&](auto zero) {
    using T = decltype(zero);
    const int64_t outputs = weight.size(0), inputs = weight.size(1), places = places_of(x);
    const Rows<T> events(from);
    const T* const a = weight.const_data_ptr<T>();
    T* const to = y.data_ptr<T>();
    const int64_t worth = grain((outputs * inputs + outputs + inputs) * places, PRODUCTS_WORTH_A_THREAD);
    at::parallel_for(0, x.size(0), worth, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        INVERTBENCH_BEST(mix_event<T>)(outputs, inputs, a, weight.stride(0), weight.stride(1), places, events[n],
                                       to + n * outputs * places);
      }
    });
  });
  return y;
}

std::tuple<at::Tensor, at::Tensor> mix_backward(const at::Tensor& of_y, const at::Tensor& x,
                                                const at::Tensor& weight) {
  check(x, weight);
  TORCH_CHECK_VALUE(of_y.sizes() == at::IntArrayRef(sizes_of(x, weight.size(0))),
                    "mix_channels: a gradient of shape ", of_y.sizes(), " does not fit x of shape ", x.sizes());
  const at::Tensor from = rows(x), back = rows(of_y);
  at::Tensor of_x = at::empty(x.sizes(), x.options()), of_weight = at::empty(weight.sizes(), x.options());
  in_precision("mix_channels", from, {weight, back}, [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = INVERTBENCH_BEST(LANES<T>);
    const int64_t outputs = weight.size(0), inputs = weight.size(1), places = places_of(x), pairs = outputs * inputs;
    const int64_t work = 2 * pairs * places * x.size(0);
    const int64_t slabs = std::clamp<int64_t>(work / PRODUCTS_WORTH_A_THREAD, 1, std::min(SLABS, x.size(0) + 1));
    Scratch<T> scratch;
    T* const lanes = scratch.zeros(slabs * pairs * width);
    T* const sums = scratch.zeros(slabs * pairs);
    const Rows<T> events(from), gradients(back);
    const T* const a = weight.const_data_ptr<T>();
    at::parallel_for(0, slabs, 1, [&](int64_t begin, int64_t end) {
      for (int64_t slab = begin; slab < end; ++slab) {
        T* const own = lanes + slab * pairs * width;
        for (int64_t n = slab * x.size(0) / slabs; n < (slab + 1) * x.size(0) / slabs; ++n) {
          INVERTBENCH_BEST(mix_event<T>)(inputs, outputs, a, weight.stride(1), weight.stride(0), places, gradients[n],
                                         of_x.data_ptr<T>() + n * inputs * places);
          INVERTBENCH_BEST(add_event<T>)(outputs, inputs, places, gradients[n], events[n], own);
        }
        INVERTBENCH_BEST(add_lanes<T>)(own, pairs, sums + slab * pairs);
      }
    });
    for (int64_t i = 0; i < pairs; ++i) {
      T sum(0);
      for (int64_t slab = 0; slab < slabs; ++slab) sum += sums[slab * pairs + i];
      of_weight.data_ptr<T>()[i] = sum;
    }
  });
  return {of_x, of_weight};
}

TORCH_LIBRARY_FRAGMENT(invertbench, m) {
  m.def("mix_channels(Tensor x, Tensor weight) -> Tensor");
  m.def("mix_channels_backward(Tensor of_y, Tensor x, Tensor weight) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(invertbench, CPU, m) {
  m.impl("mix_channels", TORCH_FN(mix));
  m.impl("mix_channels_backward", TORCH_FN(mix_backward));
}

}  // namespace invertbench::mixing
