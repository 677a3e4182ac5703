// `invertbench::perceptron` and `invertbench::perceptron_backward`: three linear layers over the channels of every
// position, tanh or ReLU between them, on a processor. Differentiated in flows/perceptron.py.
//
// Of the hidden values only the second are saved for the backward pass; the first are cheap to recompute.
// Gradients are sums over SLABS parts of the points, added up in their order: the same for any number of threads.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "coupling/perceptron.h"

#define INVERTBENCH_BODY "coupling/perceptron_tile.h"
#include "simd/each.h"

namespace invertbench {
namespace {

constexpr int64_t SLABS = 32;
constexpr double CYCLES_WORTH_A_THREAD = 30000;

using Weights = const at::Tensor&;

template <class T>
struct Way {
  int64_t lanes;
  decltype(&portable::forward_tiles<T>) forward;
  decltype(&portable::backward_tiles<T>) backward;
};

template <class T>
Way<T> way() {
#if defined(__x86_64__)
  switch (instructions()) {
    case Instructions::avx512: return {avx512::LANES<T>, avx512::forward_tiles<T>, avx512::backward_tiles<T>};
    case Instructions::avx2: return {avx2::LANES<T>, avx2::forward_tiles<T>, avx2::backward_tiles<T>};
    default: break;
  }
#endif
  return {portable::LANES<T>, portable::forward_tiles<T>, portable::backward_tiles<T>};
}

template <class T>
Points<T> points_of(const at::Tensor& x) {
  return {x.const_data_ptr<T>(), x.stride(0), x.stride(1), x.stride(2)};
}

int64_t tiles(const at::Tensor& x) { return (x.size(0) * x.size(2) + POINTS - 1) / POINTS; }
int64_t rounded(int64_t count, int64_t lanes) { return (count + lanes - 1) / lanes * lanes; }

// A matrix (or its transpose), or a vector, as rows of `columns` numbers.
template <class T>
void copy(const at::Tensor& from, bool transposed, int64_t columns, T* to) {
  const at::Tensor source = (from.dim() == 1 ? from.unsqueeze(0) : transposed ? from.t() : from).contiguous();
  const T* data = source.const_data_ptr<T>();
  for (int64_t row = 0; row < source.size(0); ++row, data += source.size(1), to += columns) {
    std::copy(data, data + source.size(1), to);
  }
}

template <class T>
Perceptron<T> pack(const at::Tensor& x, Weights weight1, Weights bias1, Weights weight2, Weights bias2, Weights weight3,
                   Weights bias3, bool bounded, Scratch<T>& scratch) {
  const int64_t inputs = weight1.size(1), width = weight1.size(0), outputs = weight3.size(0), lanes = way<T>().lanes;
  const int64_t wide = rounded(width, lanes), wide_in = rounded(inputs, lanes), wide_out = rounded(outputs, lanes);
  const auto matrix = [&](const at::Tensor& from, bool transposed, int64_t rows, int64_t columns) {
    T* const to = scratch.zeros(rows * columns);
    copy(from, transposed, columns, to);
    return to;
  };
  T* const first = matrix(weight1, true, inputs + 1, wide);
  copy(bias1, false, wide, first + inputs * wide);
  return {inputs, width, outputs, wide, wide_in, wide_out, x.size(0) * x.size(2), x.size(2), bounded, first,
          matrix(weight2, true, width, wide), matrix(weight3, true, width, wide_out), matrix(bias2, false, 1, wide),
          matrix(bias3, false, 1, wide_out), matrix(weight1, false, width, wide_in),
          matrix(weight2, false, width, wide), matrix(weight3, false, outputs, wide)};
}

void check(const at::Tensor& x, Weights weight1, Weights bias1, Weights weight2, Weights bias2, Weights weight3,
           Weights bias3) {
  TORCH_CHECK_TYPE(x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble, "perceptron: x is ",
                   x.scalar_type(), "; use float32 or float64");
  for (const at::Tensor& one : {weight1, bias1, weight2, bias2, weight3, bias3}) {
    TORCH_CHECK_TYPE(one.scalar_type() == x.scalar_type() && one.device() == x.device(),
                     "perceptron: x and the weights must be of one precision and on one device");
  }
  const auto like = [](const at::Tensor& one, at::IntArrayRef sizes) { return one.sizes() == sizes; };
  const bool matrices = x.dim() == 3 && weight1.dim() == 2 && weight3.dim() == 2;
  const int64_t width = matrices ? weight1.size(0) : 0;
  TORCH_CHECK_VALUE(matrices && width > 0 && weight1.size(1) == x.size(1) && like(bias1, {width}) &&
                        like(weight2, {width, width}) && like(bias2, {width}) && weight3.size(1) == width &&
                        like(bias3, {weight3.size(0)}),
                    "perceptron: x of shape ", x.sizes(), " does not fit weights ", weight1.sizes(), ", ",
                    weight2.sizes(), ", ", weight3.sizes(), " and biases ", bias1.sizes(), ", ", bias2.sizes(), ", ",
                    bias3.sizes());
}

// (N, inputs, L) -> (N, outputs, L), and with `keep` the second hidden values of the points, in rows of whole vectors.
std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, Weights weight1, Weights bias1, Weights weight2,
                                           Weights bias2, Weights weight3, Weights bias3, bool bounded, bool keep) {
  check(x, weight1, bias1, weight2, bias2, weight3, bias3);
  at::Tensor y = at::empty({x.size(0), weight3.size(0), x.size(2)}, x.options());
  at::Tensor hidden;
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    Scratch<T> scratch;
    const Perceptron<T> net = pack<T>(x, weight1, bias1, weight2, bias2, weight3, bias3, bounded, scratch);
    hidden = at::empty({keep ? tiles(x) * POINTS : 0, net.wide}, x.options());
    const double cycles = double(POINTS * net.wide * net.width) / 8;
    const int64_t grain = int64_t(CYCLES_WORTH_A_THREAD / cycles) + 1;
    at::parallel_for(0, tiles(x), grain, [&](int64_t begin, int64_t end) {
      way<T>().forward(net, points_of<T>(x), keep ? hidden.data_ptr<T>() : nullptr, y.data_ptr<T>(), begin, end);
    });
  };
  x.scalar_type() == at::kFloat ? run(0.0F) : run(0.0);
  return {y, hidden};
}

// The gradients of x, and of weights and biases in their order.
std::vector<at::Tensor> backward(const at::Tensor& gradient, const at::Tensor& x, Weights weight1, Weights bias1,
                                 Weights weight2, Weights bias2, Weights weight3, Weights bias3,
                                 const at::Tensor& hidden, bool bounded) {
  check(x, weight1, bias1, weight2, bias2, weight3, bias3);
  const int64_t inputs = weight1.size(1), width = weight1.size(0), outputs = weight3.size(0), all = tiles(x);
  const bool fits = gradient.dim() == 3 && gradient.size(0) == x.size(0) && gradient.size(1) == outputs &&
                    gradient.size(2) == x.size(2) && gradient.scalar_type() == x.scalar_type() && hidden.dim() == 2 &&
                    hidden.size(0) == all * POINTS && hidden.is_contiguous() && hidden.scalar_type() == x.scalar_type();
  TORCH_CHECK_VALUE(fits, "perceptron_backward: a gradient of shape ", gradient.sizes(), " and hidden values ",
                    hidden.sizes(), " do not fit x of shape ", x.sizes());
  std::vector<at::Tensor> made{at::empty(x.sizes(), x.options().memory_format(at::MemoryFormat::Contiguous))};
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    Scratch<T> scratch;
    const Perceptron<T> net = pack<T>(x, weight1, bias1, weight2, bias2, weight3, bias3, bounded, scratch);
    TORCH_CHECK_VALUE(hidden.size(1) == net.wide, "perceptron_backward: hidden values in rows of ", hidden.size(1));
    const int64_t rows = inputs + 1 + width + outputs + 1, slabs = std::clamp<int64_t>(all, 1, SLABS);
    const at::Tensor sums = at::zeros({slabs, rows, net.wide}, x.options());
    const at::Tensor sums3 = at::zeros({slabs, outputs}, x.options());
    const double cycles = double(all) * double(POINTS * net.wide * net.width) / 3;
    const int64_t grain = std::max<int64_t>(1, int64_t(CYCLES_WORTH_A_THREAD / (cycles / double(slabs) + 1)));
    at::parallel_for(0, slabs, grain, [&](int64_t begin, int64_t end) {
      for (int64_t slab = begin; slab < end; ++slab) {
        T* const first = sums.data_ptr<T>() + slab * rows * net.wide;
        T* const second = first + (inputs + 1) * net.wide;
        T* const third = second + width * net.wide;
        const Sums<T> own{first, second, third, third + outputs * net.wide, sums3.data_ptr<T>() + slab * outputs};
        way<T>().backward(net, points_of<T>(x), points_of<T>(gradient), hidden.const_data_ptr<T>(),
                          made[0].template data_ptr<T>(), own, slab * all / slabs, (slab + 1) * all / slabs);
      }
    });
    const at::Tensor total = sums.sum(0).slice(1, 0, width);
    made.push_back(total.slice(0, 0, inputs).t().contiguous());
    made.push_back(total.select(0, inputs).clone());
    made.push_back(total.slice(0, inputs + 1, inputs + 1 + width).contiguous());
    made.push_back(total.select(0, rows - 1).clone());
    made.push_back(total.slice(0, inputs + 1 + width, rows - 1).contiguous());
    made.push_back(sums3.sum(0));
  };
  x.scalar_type() == at::kFloat ? run(0.0F) : run(0.0);
  return made;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(invertbench, m) {
  m.def("perceptron(Tensor x, Tensor weight1, Tensor bias1, Tensor weight2, Tensor bias2, Tensor weight3, "
        "Tensor bias3, bool bounded, bool keep) -> (Tensor, Tensor)");
  m.def("perceptron_backward(Tensor gradient, Tensor x, Tensor weight1, Tensor bias1, Tensor weight2, Tensor bias2, "
        "Tensor weight3, Tensor bias3, Tensor hidden, bool bounded) -> Tensor[]");
}
TORCH_LIBRARY_IMPL(invertbench, CPU, m) {
  m.impl("perceptron", TORCH_FN(forward));
  m.impl("perceptron_backward", TORCH_FN(backward));
}

}  // namespace invertbench
