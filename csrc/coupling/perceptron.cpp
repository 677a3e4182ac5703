// `invertbench::perceptron` and `invertbench::perceptron_backward`: three linear layers over the channels of every
// position, tanh or ReLU between them, on a processor. Differentiated in coupling.cpp.
//
// Of the hidden values only the second are saved for the backward pass; the first are cheap to recompute.
// Gradients are sums over up to SLABS parts of the points, added up in their order: the same for any number of threads.

#include <ATen/ops/zeros.h>

#include <array>
#include <numeric>

#include "coupling/perceptron.h"
#include "operands.h"

namespace invertbench::perceptron {
namespace {

constexpr int64_t SLABS = 32, TILES_WORTH_A_SLAB = 8;  // the sums of a slab take as long as a few tiles
constexpr double CYCLES_WORTH_A_THREAD = 30000;

template <class T>
Points<T> points_of(const at::Tensor& x) {
  return {x.const_data_ptr<T>(), x.stride(0), x.stride(1), x.stride(2)};
}

int64_t tiles(const at::Tensor& x) { return (x.size(0) * x.size(2) + POINTS - 1) / POINTS; }

// The weights, contiguous, for as long as the object lives.
template <class T>
struct Net {
  Net(const at::Tensor& x, at::TensorList weights, bool bounded) {
    for (size_t i = 0; i < held.size(); ++i) held[i] = weights[i].contiguous();
    const auto data = [&](int i) { return held[i].template const_data_ptr<T>(); };
    net = {held[0].size(1), held[0].size(0), held[4].size(0), x.size(0) * x.size(2), x.size(2), bounded,
           data(0), data(1), data(2), data(3), data(4), data(5)};
  }
  std::array<at::Tensor, 6> held;
  Perceptron<T> net;
};

void check(const at::Tensor& x, at::TensorList weights) {
  TORCH_CHECK_VALUE(weights.size() == 6, "perceptron: ", weights.size(), " weights; use those of three layers");
  const at::Tensor &first = weights[0], &last = weights[4];
  const bool matrices = x.dim() == 3 && first.dim() == 2 && last.dim() == 2;
  const int64_t width = matrices ? first.size(0) : 0, outputs = matrices ? last.size(0) : 0;
  const auto like = [&](size_t i, at::IntArrayRef sizes) { return weights[i].sizes() == sizes; };
  const bool fits = width > 0 && like(0, {width, x.size(1)}) && like(1, {width}) && like(2, {width, width}) &&
                    like(3, {width}) && like(4, {outputs, width}) && like(5, {outputs});
  TORCH_CHECK_VALUE(fits, "perceptron: x of shape ", x.sizes(), " does not fit weights ", first.sizes(), ", ",
                    weights[2].sizes(), ", ", last.sizes(), " and biases ", weights[1].sizes(), ", ",
                    weights[3].sizes(), ", ", weights[5].sizes());
}

// (N, inputs, L) -> (N, outputs, L), and with `keep` the second hidden values of every tile of points, for `backward`.
std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, at::TensorList weights, bool bounded, bool keep) {
  check(x, weights);
  at::Tensor y = at::empty({x.size(0), weights[4].size(0), x.size(2)}, x.options());
  at::Tensor hidden;
  in_precision("perceptron", x, weights, [&](auto zero) {
    using T = decltype(zero);
    const Net<T> own(x, weights, bounded);
    const Perceptron<T>& net = own.net;
    hidden = at::empty({keep ? tiles(x) : 0, net.width, POINTS}, x.options());
    const double cycles = double(POINTS * net.width * net.width) / 16;
    const int64_t grain = int64_t(CYCLES_WORTH_A_THREAD / cycles) + 1;
    at::parallel_for(0, tiles(x), grain, [&](int64_t begin, int64_t end) {
      forward_tiles<T>(net, points_of<T>(x), keep ? hidden.data_ptr<T>() : nullptr, y.data_ptr<T>(), begin, end);
    });
  });
  return {y, hidden};
}

// The gradients of weights and biases in their order; that of x is added to `of_x`, part of a tensor of more channels.
std::vector<at::Tensor> backward(const at::Tensor& of_x, const at::Tensor& gradient, const at::Tensor& x,
                                 at::TensorList weights, const at::Tensor& hidden, bool bounded) {
  check(x, weights);
  const int64_t width = weights[0].size(0), inputs = x.size(1), outputs = weights[4].size(0), all = tiles(x);
  const bool fits = gradient.dim() == 3 && gradient.size(0) == x.size(0) && gradient.size(1) == outputs &&
                    gradient.size(2) == x.size(2) && gradient.scalar_type() == x.scalar_type() &&
                    hidden.is_contiguous() && hidden.sizes() == at::IntArrayRef({all, width, POINTS}) &&
                    hidden.scalar_type() == x.scalar_type() && of_x.sizes() == x.sizes() &&
                    of_x.scalar_type() == x.scalar_type() && (of_x.numel() == 0 || of_x.select(0, 0).is_contiguous());
  TORCH_CHECK_VALUE(fits, "perceptron_backward: a gradient of shape ", gradient.sizes(), " and hidden values ",
                    hidden.sizes(), " do not fit x of shape ", x.sizes());
  std::vector<at::Tensor> made;
  in_precision("perceptron", x, weights, [&](auto zero) {
    using T = decltype(zero);
    const Net<T> own(x, weights, bounded);
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
  });
  return made;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(invertbench, m) {
  m.def("perceptron(Tensor x, Tensor[] weights, bool bounded, bool keep) -> (Tensor, Tensor)");
  m.def("perceptron_backward(Tensor(a!) of_x, Tensor gradient, Tensor x, Tensor[] weights, Tensor hidden, "
        "bool bounded) -> Tensor[]");
}
TORCH_LIBRARY_IMPL(invertbench, CPU, m) {
  m.impl("perceptron", TORCH_FN(forward));
  m.impl("perceptron_backward", TORCH_FN(backward));
}

}  // namespace invertbench::perceptron
