// `invertbench::perceptron` and `invertbench::perceptron_backward`: three linear layers over the channels of every
// position, tanh or ReLU between them, on a processor. Differentiated in coupling.cpp.
//
// Of the hidden values only the second are saved for the backward pass; the first are cheap to recompute.
// Gradients are sums over up to SLABS parts of the points, added up in their order: the same for any number of threads.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <tuple>
#include <vector>

#include "coupling/perceptron.h"
#include "simd/cpu.h"

namespace invertbench::perceptron {
namespace {

constexpr int64_t SLABS = 32, TILES_WORTH_A_SLAB = 8;  // the sums of a slab take as long as a few tiles
constexpr double CYCLES_WORTH_A_THREAD = 30000;

using Weights = const at::Tensor&;

template <class T>
Points<T> points_of(const at::Tensor& x) {
  return {x.const_data_ptr<T>(), x.stride(0), x.stride(1), x.stride(2)};
}

int64_t tiles(const at::Tensor& x) { return (x.size(0) * x.size(2) + POINTS - 1) / POINTS; }

// The weights, contiguous, for as long as the object lives.
template <class T>
struct Net {
  Net(const at::Tensor& x, Weights weight1, Weights bias1, Weights weight2, Weights bias2, Weights weight3,
      Weights bias3, bool bounded)
      : held{weight1.contiguous(), bias1.contiguous(), weight2.contiguous(),
             bias2.contiguous(), weight3.contiguous(), bias3.contiguous()} {
    const auto data = [&](int i) { return held[i].template const_data_ptr<T>(); };
    net = {weight1.size(1), weight1.size(0), weight3.size(0), x.size(0) * x.size(2), x.size(2), bounded,
           data(0), data(1), data(2), data(3), data(4), data(5)};
  }
  std::array<at::Tensor, 6> held;
  Perceptron<T> net;
};

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

// (N, inputs, L) -> (N, outputs, L), and with `keep` the second hidden values of every tile of points, for `backward`.
std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, Weights weight1, Weights bias1, Weights weight2,
                                           Weights bias2, Weights weight3, Weights bias3, bool bounded, bool keep) {
  check(x, weight1, bias1, weight2, bias2, weight3, bias3);
  at::Tensor y = at::empty({x.size(0), weight3.size(0), x.size(2)}, x.options());
  at::Tensor hidden;
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    const Net<T> own(x, weight1, bias1, weight2, bias2, weight3, bias3, bounded);
    const Perceptron<T>& net = own.net;
    hidden = at::empty({keep ? tiles(x) : 0, net.width, POINTS}, x.options());
    const double cycles = double(POINTS * net.width * net.width) / 16;
    const int64_t grain = int64_t(CYCLES_WORTH_A_THREAD / cycles) + 1;
    at::parallel_for(0, tiles(x), grain, [&](int64_t begin, int64_t end) {
      forward_tiles<T>(net, points_of<T>(x), keep ? hidden.data_ptr<T>() : nullptr, y.data_ptr<T>(), begin, end);
    });
  };
  x.scalar_type() == at::kFloat ? run(0.0F) : run(0.0);
  return {y, hidden};
}

// The gradients of weights and biases in their order; that of x is added to `of_x`, part of a tensor of more channels.
std::vector<at::Tensor> backward(const at::Tensor& of_x, const at::Tensor& gradient, const at::Tensor& x,
                                 Weights weight1, Weights bias1, Weights weight2, Weights bias2, Weights weight3,
                                 Weights bias3, const at::Tensor& hidden, bool bounded) {
  check(x, weight1, bias1, weight2, bias2, weight3, bias3);
  const int64_t inputs = weight1.size(1), width = weight1.size(0), outputs = weight3.size(0), all = tiles(x);
  const bool fits = gradient.dim() == 3 && gradient.size(0) == x.size(0) && gradient.size(1) == outputs &&
                    gradient.size(2) == x.size(2) && gradient.scalar_type() == x.scalar_type() &&
                    hidden.is_contiguous() && hidden.sizes() == at::IntArrayRef({all, width, POINTS}) &&
                    hidden.scalar_type() == x.scalar_type() && of_x.sizes() == x.sizes() &&
                    of_x.scalar_type() == x.scalar_type() && (of_x.numel() == 0 || of_x.select(0, 0).is_contiguous());
  TORCH_CHECK_VALUE(fits, "perceptron_backward: a gradient of shape ", gradient.sizes(), " and hidden values ",
                    hidden.sizes(), " do not fit x of shape ", x.sizes());
  std::vector<at::Tensor> made;
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    const Net<T> own(x, weight1, bias1, weight2, bias2, weight3, bias3, bounded);
    const Perceptron<T>& net = own.net;
    const int64_t slabs = std::clamp<int64_t>(all / TILES_WORTH_A_SLAB, 1, SLABS);
    const int64_t wide = rounded(width, WIDTH_OF<T>);
    const std::vector<int64_t> counts{width * inputs, width, width * wide, width, outputs * width, outputs};
    const int64_t size = std::accumulate(counts.begin(), counts.end(), int64_t(0));
    const at::Tensor sums = at::zeros({slabs, size}, x.options());
    const double cycles = double(all) * double(POINTS * width * width) / 6;
    const int64_t grain = std::max<int64_t>(1, int64_t(CYCLES_WORTH_A_THREAD / (cycles / double(slabs) + 1)));
    at::parallel_for(0, slabs, grain, [&](int64_t begin, int64_t end) {
      for (int64_t slab = begin; slab < end; ++slab) {
        T* at[6] = {sums.data_ptr<T>() + slab * size};
        for (int i = 1; i < 6; ++i) at[i] = at[i - 1] + counts[i - 1];
        backward_tiles<T>(net, points_of<T>(x), points_of<T>(gradient), hidden.const_data_ptr<T>(),
                          of_x.template data_ptr<T>(), of_x.stride(0),
                          {wide, at[0], at[1], at[2], at[3], at[4], at[5]}, slab * all / slabs,
                          (slab + 1) * all / slabs);
      }
    });
    const std::vector<at::Tensor> totals = sums.sum(0).split_with_sizes(counts);
    made.push_back(totals[0].view({width, inputs}).clone());
    made.push_back(totals[1].clone());
    made.push_back(totals[2].view({width, wide}).slice(1, 0, width).clone(at::MemoryFormat::Contiguous));
    made.push_back(totals[3].clone());
    made.push_back(totals[4].view({outputs, width}).clone());
    made.push_back(totals[5].clone());
  };
  x.scalar_type() == at::kFloat ? run(0.0F) : run(0.0);
  return made;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(invertbench, m) {
  m.def("perceptron(Tensor x, Tensor weight1, Tensor bias1, Tensor weight2, Tensor bias2, Tensor weight3, "
        "Tensor bias3, bool bounded, bool keep) -> (Tensor, Tensor)");
  m.def("perceptron_backward(Tensor(a!) of_x, Tensor gradient, Tensor x, Tensor weight1, Tensor bias1, "
        "Tensor weight2, Tensor bias2, Tensor weight3, Tensor bias3, Tensor hidden, bool bounded) -> Tensor[]");
}
TORCH_LIBRARY_IMPL(invertbench, CPU, m) {
  m.impl("perceptron", TORCH_FN(forward));
  m.impl("perceptron_backward", TORCH_FN(backward));
}

}  // namespace invertbench::perceptron
