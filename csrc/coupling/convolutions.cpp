// `invertbench::convolutions` and `invertbench::convolutions_backward`: 3x3 convolution, ELU, 1x1, ELU, 3x3, the
// network of an image coupling, all weight-normalised and with a bias, on a processor. Differentiated in
// coupling.cpp.
//
// `weights` are gain, direction and bias of the three, in this order. Gradients are sums over parts of the images,
// which are added up in their order: the same for any number of threads.

#include <ATen/ops/empty_like.h>

#include <cmath>

#include "coupling/convolutions.h"
#include "operands.h"

namespace invertbench::convolutions {
namespace {

// Places of the images that backward takes together: short sums are slow, and more do not fit into the cache.
constexpr int64_t PLACES = 256;
// Parts of the images with a sum of their own. Adding up those of large weights takes long.
constexpr int64_t FEWEST_PARTS = 4, MOST_PARTS = 8, NUMBERS_OF_PARTS = 1 << 18;
constexpr double WORTH_A_THREAD = 1e6;  // multiply-adds
constexpr int64_t WEIGHTS_WORTH_A_THREAD = 60000, SUMS_WORTH_A_THREAD = 8192;

// Call each(begin, end) for blocks of the outputs of a weight.
template <class T, class Each>
void for_blocks(const WeightNorm<T>& of, const Each& each) {
  const int64_t blocks = (of.outputs + TOGETHER - 1) / TOGETHER;
  const int64_t grain = WEIGHTS_WORTH_A_THREAD / (TOGETHER * of.row() + 1) + 1;
  at::parallel_for(0, blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      each(block * TOGETHER, std::min(of.outputs, (block + 1) * TOGETHER));
    }
  });
}

template <class T>
Images<T> images_of(const at::Tensor& x) {
  return {x.const_data_ptr<T>(), x.size(1), x.stride(0), x.stride(1), x.stride(2), x.stride(3)};
}

// One of the three convolutions of a call.
template <class T>
WeightNorm<T> layer(at::TensorList weights, int64_t number) {
  const at::Tensor &gain = weights[3 * number], &direction = weights[3 * number + 1];
  return {gain.const_data_ptr<T>(), direction.const_data_ptr<T>(), direction.size(0), direction.size(1),
          direction.size(2) * direction.size(3)};
}

// The network of a call, and the memory that it refers to.
template <class T>
class Packed {
 public:
  Packed(const at::Tensor& x, at::TensorList weights, bool backward) {
    const WeightNorm<T> first = layer<T>(weights, 0), second = layer<T>(weights, 1), third = layer<T>(weights, 2);
    net.kept = first.inputs;
    net.width = first.outputs;
    net.outputs = third.outputs;
    net.wide = rounded(net.width, 64 / int64_t(sizeof(T)));  // the same for every instruction set: it is saved
    net.taps_kept = rounded(9 * net.kept, WIDTH_OF<T>);
    net.taps_out = rounded(9 * net.outputs, WIDTH_OF<T>);
    lay_out(x.size(2), x.size(3));
    const auto packed = [&](const WeightNorm<T>& of, const Order& order, int64_t size) {
      T* const to = scratch_.zeros(size);
      for_blocks(of, [&](int64_t begin, int64_t end) { pack<T>(of, order, to, begin, end); });
      return to;
    };
    const int64_t wide = net.wide;
    if (backward) {
      net.third_back = packed(third, {wide, 1, net.outputs * wide, true}, 9 * net.outputs * wide);
      net.second_back = packed(second, {wide, 1, 0, false}, net.width * wide);
      net.first_back = packed(first, {net.taps_kept, 1, net.kept, true}, net.width * net.taps_kept);
      return;
    }
    net.first = packed(first, {1, wide, net.kept * wide, false}, 9 * net.kept * wide);
    net.second = packed(second, {1, wide, 0, false}, net.width * wide);
    net.third = packed(third, {1, net.taps_out, net.outputs, false}, net.width * net.taps_out);
    const auto padded = [&](const at::Tensor& bias, int64_t size) {
      T* const to = scratch_.zeros(size);
      std::copy_n(bias.const_data_ptr<T>(), bias.size(0), to);
      return to;
    };
    net.bias1 = padded(weights[2], wide);
    net.bias2 = padded(weights[5], wide);
    net.bias3 = padded(weights[8], rounded(net.outputs, WIDTH_OF<T>));
  }

  Network<T> net{};

 private:
  void lay_out(int64_t rows, int64_t columns) {
    const int64_t count = std::max({rows * columns, net.width, 3 * net.outputs, 3 * net.kept});
    int64_t* const corners = places_.zeros(rows * columns);
    int64_t* const numbers = places_.zeros(count);
    net.grid = {rows, columns, corners, numbers};
    for (int64_t p = 0; p < rows * columns; ++p) corners[p] = p / columns * net.grid.pitch() + p % columns;
    for (int64_t n = 0; n < count; ++n) numbers[n] = n;
  }

  Scratch<T> scratch_;
  Scratch<int64_t> places_;
};

// Multiply-adds of an image's forward pass.
template <class T>
double work(const Network<T>& net) {
  return double(net.grid.count() * net.width) * double(9 * net.kept + net.width + 9 * net.outputs);
}

std::vector<at::Tensor> contiguous(at::TensorList weights) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& weight : weights) result.push_back(weight.contiguous());
  return result;
}

void check(const at::Tensor& x, at::TensorList weights) {
  TORCH_CHECK_VALUE(weights.size() == 9, "convolutions: ", weights.size(),
                    " weights; use gain, direction and bias of three layers");
  const at::Tensor &first = weights[1], &second = weights[4], &third = weights[7];
  bool fits = x.dim() == 4 && first.dim() == 4 && third.dim() == 4 && first.size(0) > 0 && first.size(1) == x.size(1);
  if (fits) {
    const int64_t width = first.size(0), outputs = third.size(0);
    fits = first.sizes() == at::IntArrayRef({width, x.size(1), 3, 3}) &&
           second.sizes() == at::IntArrayRef({width, width, 1, 1}) &&
           third.sizes() == at::IntArrayRef({outputs, width, 3, 3});
    for (int64_t layer = 0; layer < 3; ++layer) {
      const int64_t channels = layer == 2 ? outputs : width;
      fits = fits && weights[3 * layer].sizes() == at::IntArrayRef({channels, 1, 1, 1}) &&
             weights[3 * layer + 2].sizes() == at::IntArrayRef({channels});
    }
  }
  TORCH_CHECK_VALUE(fits, "convolutions: x of shape ", x.sizes(), " does not fit weights of shapes ", first.sizes(),
                    ", ", second.sizes(), ", ", third.sizes(), ", their gains or their biases");
}

// (N, kept, H, W) -> (N, outputs, H, W), and with `keep` both hidden values of every image.
std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, at::TensorList weights, bool keep) {
  check(x, weights);
  at::Tensor y = at::empty({x.size(0), weights[7].size(0), x.size(2), x.size(3)}, x.options());
  at::Tensor saved;
  const std::vector<at::Tensor> held = contiguous(weights);
  in_precision("convolutions", x, weights, [&](auto zero) {
    using T = decltype(zero);
    const Packed<T> packed(x, held, false);
    saved = at::empty({keep ? x.size(0) : 0, packed.net.saved()}, x.options());
    const int64_t grain = int64_t(WORTH_A_THREAD / (work(packed.net) + 1)) + 1;
    at::parallel_for(0, y.numel() > 0 ? x.size(0) : 0, grain, [&](int64_t begin, int64_t end) {
      T* const kept = keep ? saved.data_ptr<T>() : nullptr;
      forward_images<T>(packed.net, images_of<T>(x), kept, y.data_ptr<T>(), begin, end);
    });
  });
  return {y, saved};
}

// The sums of all gradients of weights, one after the other in memory.
template <class T>
struct Sums {
  explicit Sums(const Network<T>& net)
      : first(9 * net.kept * net.wide), second(net.width * net.wide), third(9 * net.outputs * net.wide),
        wide(net.wide), size(first + second + third + 2 * wide + rounded(net.outputs, net.wide)) {}

  template <class Number>
  Gradients<Number> in(Number* data) const {
    Number* const bias1 = data + first + second + third;
    return {data, data + first, data + first + second, bias1, bias1 + wide, bias1 + 2 * wide};
  }

  int64_t first, second, third, wide, size;
};

template <class T>
std::vector<at::Tensor> gradients_of(
    at::TensorList weights, const Network<T>& net, const Gradients<const T>& sums) {
  std::vector<at::Tensor> made;
  const Order orders[] = {{1, net.wide, net.kept * net.wide, false}, {net.wide, 1, 0, false},
                          {net.wide, 1, net.outputs * net.wide, true}};
  const T* const of_weights[] = {sums.first, sums.second, sums.third};
  const T* const biases[] = {sums.bias1, sums.bias2, sums.bias3};
  for (int64_t number = 0; number < 3; ++number) {
    for (int64_t i = 0; i < 3; ++i) made.push_back(at::empty_like(weights[3 * number + i]));
    const WeightNorm<T> of = layer<T>(weights, number);
    T* const of_gain = made[3 * number].template data_ptr<T>();
    T* const of_v = made[3 * number + 1].template data_ptr<T>();
    for_blocks(of, [&](int64_t begin, int64_t end) {
      unpack_gradients<T>(of, orders[number], of_weights[number], of_gain, of_v, begin, end);
    });
    std::copy_n(biases[number], of.outputs, made[3 * number + 2].template data_ptr<T>());
  }
  return made;
}

// Whether this may be the gradient of some channels of the output.
bool fits_output(const at::Tensor& gradient, const at::Tensor& x) {
  return gradient.dim() == 4 && gradient.size(0) == x.size(0) && gradient.sizes().slice(2) == x.sizes().slice(2) &&
         gradient.scalar_type() == x.scalar_type();
}

// The gradients of the weights; that of x is added to `of_x`, part of a tensor of more channels. Those of the outputs
// are in two tensors, for some channels and then the others.
std::vector<at::Tensor> backward(const at::Tensor& of_x, const at::Tensor& of_some, const at::Tensor& of_others,
                                 const at::Tensor& x, at::TensorList weights, const at::Tensor& saved) {
  check(x, weights);
  const bool fits = fits_output(of_some, x) && fits_output(of_others, x) &&
                    of_some.size(1) + of_others.size(1) == weights[7].size(0) && saved.dim() == 2 &&
                    saved.size(0) == x.size(0) && saved.is_contiguous() && saved.scalar_type() == x.scalar_type() &&
                    of_x.sizes() == x.sizes() && of_x.scalar_type() == x.scalar_type() &&
                    (of_x.numel() == 0 || of_x.select(0, 0).is_contiguous());
  TORCH_CHECK_VALUE(fits, "convolutions_backward: gradients of shapes ", of_some.sizes(), " and ", of_others.sizes(),
                    ", hidden values ", saved.sizes(), " and a sum ", of_x.sizes(), " do not fit x of shape ",
                    x.sizes());
  std::vector<at::Tensor> made;
  const std::vector<at::Tensor> held = contiguous(weights);
  in_precision("convolutions", x, weights, [&](auto zero) {
    using T = decltype(zero);
    const Packed<T> packed(x, held, true);
    const Network<T>& net = packed.net;
    TORCH_CHECK_VALUE(saved.size(1) == net.saved(), "convolutions_backward: hidden values in rows of ", saved.size(1));
    const int64_t images = x.numel() > 0 ? x.size(0) : 0, places = std::max<int64_t>(net.grid.count(), 1);
    const int64_t together = std::clamp<int64_t>(PLACES / places, 1, std::max<int64_t>(images, 1));
    const Sums<T> layout(net);
    const int64_t most = std::clamp(NUMBERS_OF_PARTS / layout.size, FEWEST_PARTS, MOST_PARTS);
    const int64_t parts = std::clamp<int64_t>(images / together, 1, most);
    const at::Tensor sums = at::empty({parts, layout.size}, x.options());
    T* const total = sums.data_ptr<T>();
    const int64_t grain = int64_t(WORTH_A_THREAD / (2 * work(net) * double(images) / double(parts) + 1)) + 1;
    at::parallel_for(0, parts, grain, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        T* const own = total + part * layout.size;
        std::fill(own, own + layout.size, T(0));
        backward_images<T>(net, images_of<T>(x), {images_of<T>(of_some), images_of<T>(of_others)},
                           saved.const_data_ptr<T>(), of_x.data_ptr<T>(), of_x.stride(0), layout.in(own), together,
                           part * images / parts, (part + 1) * images / parts);
      }
    });
    at::parallel_for(0, layout.size, SUMS_WORTH_A_THREAD, [&](int64_t begin, int64_t end) {
      for (int64_t part = 1; part < parts; ++part) {
        const T* const own = total + part * layout.size;
        for (int64_t i = begin; i < end; ++i) total[i] += own[i];
      }
    });
    made = gradients_of<T>(held, net, layout.in(static_cast<const T*>(total)));
  });
  return made;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(invertbench, m) {
  m.def("convolutions(Tensor x, Tensor[] weights, bool keep) -> (Tensor, Tensor)");
  m.def("convolutions_backward(Tensor(a!) of_x, Tensor of_some, Tensor of_others, Tensor x, Tensor[] weights, "
        "Tensor saved) -> Tensor[]");
}
TORCH_LIBRARY_IMPL(invertbench, CPU, m) {
  m.impl("convolutions", TORCH_FN(forward));
  m.impl("convolutions_backward", TORCH_FN(backward));
}
}  // namespace invertbench::convolutions
