// `invertbench::circular`, on a processor: a convolution of events that repeat at their borders,
//     y[o, p] = sum over i and t of weight[o, i, t] x[i, (p + t - before) mod size] + bias[o],
// and `invertbench::circular_weight`, the gradient of its weight. Libraries' convolutions of few channels or small
// events are many times slower than their arithmetic, and would need a padded copy of the events.
//
// The gradient of x is a circular convolution again, with the transposed kernel turned about; so are those of
// `circular_weight`, which is bilinear. All derivatives are hence these two operators.

#include "convolution/operators.h"

#include <optional>

#include "convolution/correlate.h"
#include "operands.h"

namespace invertbench::circular {

#define INVERTBENCH_BODY "convolution/convolve_planes.h"
#include "simd/each.h"

namespace {

constexpr int64_t PRODUCTS_WORTH_A_THREAD = 500000;

std::vector<int64_t> on_each_axis(const at::Tensor& x, int64_t before) {
  return std::vector<int64_t>(x.dim() - 2, before);
}

void check_circular(const at::Tensor& x, int64_t inputs, at::IntArrayRef sizes, int64_t before) {
  bool fits = (x.dim() == 3 || x.dim() == 4) && int64_t(sizes.size()) == x.dim() - 2 && x.size(1) == inputs;
  for (size_t axis = 0; fits && axis < sizes.size(); ++axis) {
    const int64_t after = sizes[axis] - 1 - before;
    fits = sizes[axis] == sizes[0] && 0 <= std::min(before, after) &&
           std::max(before, after) <= x.size(int64_t(axis) + 2);
  }
  TORCH_CHECK_VALUE(fits, "circular: events of shape ", x.sizes(), " do not fit a kernel of ", inputs,
                    " channels and size ", sizes, ", ", before, " of it before a position; its sizes must be equal, "
                    "and the padding not larger than the event");
}

}  // namespace

at::Tensor circular(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                    int64_t before) {
  TORCH_CHECK_VALUE(weight.dim() == x.dim() && (!bias || bias->sizes() == weight.sizes().slice(0, 1)),
                    "circular: a weight of shape ", weight.sizes(), " does not fit events of shape ", x.sizes(),
                    ", or its bias");
  check_circular(x, weight.size(1), weight.sizes().slice(2), before);
  std::vector<int64_t> shape = x.sizes().vec();
  shape[1] = weight.size(0);
  at::Tensor y = at::empty(shape, x.options().memory_format(at::MemoryFormat::Contiguous));
  const at::Tensor events = rows(x), kernel = weight.contiguous();
  const at::Tensor offset = bias ? bias->contiguous() : kernel.new_zeros({kernel.size(0)});
  const Frame frame = correlation::frame_of(x, weight.sizes().slice(2), on_each_axis(x, before), true);
  in_precision("circular", events, {kernel, offset}, [&](auto zero) {
    using T = decltype(zero);
    const int64_t lanes = INVERTBENCH_BEST(LANES<T>);
    const auto convolve = INVERTBENCH_BEST(convolve<T>);
    const int64_t inputs = weight.size(1), outputs = weight.size(0), count = inputs * frame.rows * frame.columns;
    const int64_t plane = frame.plane(lanes), pitch = frame.results(lanes), places = frame.height * frame.width;
    const std::vector<int64_t> distances = frame.distances(inputs, lanes);
    Scratch<T> scratch;
    T* const weights = scratch.numbers(count * outputs);
    const T *const given = kernel.const_data_ptr<T>(), *const shift = offset.const_data_ptr<T>();
    for (int64_t o = 0; o < outputs; ++o) {
      for (int64_t e = 0; e < count; ++e) weights[e * outputs + o] = given[o * count + e];
    }
    const ThreadMemory<T> memory(inputs * plane + outputs * pitch, at::get_num_threads());
    T* const to = y.data_ptr<T>();
    const Rows<T> from(events);
    const int64_t worth = grain(count * outputs * pitch, PRODUCTS_WORTH_A_THREAD);
    at::parallel_for(0, x.size(0), worth, [&](int64_t begin, int64_t end) {
      T *const padded = memory.own(), *const results = padded + inputs * plane;
      for (int64_t n = begin; n < end; ++n) {
        for (int64_t i = 0; i < inputs; ++i) pad(frame, from[n] + i * places, plane, padded + i * plane);
        convolve(distances, weights, outputs, padded, results, pitch);
        for (int64_t o = 0; o < outputs; ++o) {
          T* row = to + (n * outputs + o) * places;
          for (int64_t r = 0; r < frame.height; ++r, row += frame.width) {
            const T* const found = results + o * pitch + r * frame.stride();
            for (int64_t s = 0; s < frame.width; ++s) row[s] = found[s] + shift[o];
          }
        }
      }
    });
  });
  return y;
}

at::Tensor circular_weight(const at::Tensor& x, const at::Tensor& of_y, at::IntArrayRef sizes, int64_t before) {
  check_circular(x, x.size(1), sizes, before);
  std::vector<int64_t> shape{of_y.size(1), x.size(1)};
  shape.insert(shape.end(), sizes.begin(), sizes.end());
  return correlation::correlate(x, of_y, correlation::frame_of(x, sizes, on_each_axis(x, before), true)).reshape(shape);
}

TORCH_LIBRARY_FRAGMENT(invertbench, m) {
  m.def("circular(Tensor x, Tensor weight, Tensor? bias, int before) -> Tensor");
  m.def("circular_weight(Tensor x, Tensor of_y, int[] sizes, int before) -> Tensor");
}
TORCH_LIBRARY_IMPL(invertbench, CPU, m) {
  m.impl("circular", TORCH_FN(circular));
  m.impl("circular_weight", TORCH_FN(circular_weight));
}

}  // namespace invertbench::circular
