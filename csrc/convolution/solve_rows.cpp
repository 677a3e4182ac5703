// `invertbench::solve_rows`, on a processor: the x, (N, C, H, W), of
//     y[o, r, s] = x[o, r, s] + sum over i, 0 <= a < h and 0 <= b < k of weight[o, i, a, b] x~[i, r + a - h, s + b - m],
// with x~ zero outside the event, k odd and m = (k - 1) / 2: each pixel depends on the h rows above it, so the rows are
// computed one after the other, each as a whole. The last row of the kernel is the nearest.

#include "convolution/operators.h"

#include "convolution/frame.h"
#include "operands.h"

namespace invertbench::solving {

#define INVERTBENCH_BODY "convolution/convolve_planes.h"
#include "simd/each.h"

namespace {

constexpr int64_t PRODUCTS_WORTH_A_THREAD = 500000;

}  // namespace

at::Tensor solve_rows(const at::Tensor& y, const at::Tensor& weight) {
  TORCH_CHECK_VALUE(y.dim() == 4 && weight.dim() == 4 && weight.size(0) == y.size(1) && weight.size(1) == y.size(1) &&
                        weight.size(3) % 2 == 1,
                    "solve_rows: a weight of shape ", weight.sizes(), " does not fit images of shape ", y.sizes(),
                    "; expected (C, C, h, k), odd k");
  const at::Tensor images = rows(y), kernel = weight.contiguous();
  at::Tensor x = at::empty(y.sizes(), y.options().memory_format(at::MemoryFormat::Contiguous));
  in_precision("solve_rows", images, {kernel}, [&](auto zero) {
    using T = decltype(zero);
    const int64_t lanes = INVERTBENCH_BEST(LANES<T>), channels = y.size(1), height = y.size(2), width = y.size(3);
    const int64_t depth = weight.size(2), side = weight.size(3) / 2;
    const Frame frame{height, width, depth, weight.size(3), depth, side, false};
    const int64_t plane = frame.plane(lanes), stride = frame.stride(), pitch = rounded(width, lanes);
    const std::vector<int64_t> distances = frame.distances(channels, lanes);
    const int64_t entries = int64_t(distances.size());
    Scratch<T> scratch;
    T* const weights = scratch.numbers(entries * channels);
    const T* const given = kernel.const_data_ptr<T>();
    for (int64_t o = 0; o < channels; ++o) {
      for (int64_t e = 0; e < entries; ++e) weights[e * channels + o] = -given[o * entries + e];
    }
    // What is around an image stays zero from one to the next; what a vector reads beyond a row is not used.
    const ThreadMemory<T> memory(channels * (plane + pitch), at::get_num_threads(), true);
    T* const to = x.data_ptr<T>();
    const Rows<T> from(images);
    const int64_t worth = grain(entries * channels * height * pitch, PRODUCTS_WORTH_A_THREAD);
    at::parallel_for(0, y.size(0), worth, [&](int64_t begin, int64_t end) {
      T *const padded = memory.own(), *const sums = padded + channels * plane;
      for (int64_t n = begin; n < end; ++n) {
        for (int64_t r = 0; r < height; ++r) {
          INVERTBENCH_BEST(convolve<T>)(distances, weights, channels, padded + r * stride, sums, pitch);
          for (int64_t o = 0; o < channels; ++o) {
            const int64_t row = (o * height + r) * width;
            const T *const right = from[n] + row, *const sum = sums + o * pitch;
            T* const solved = to + n * channels * height * width + row;
            for (int64_t s = 0; s < width; ++s) solved[s] = right[s] + sum[s];
            if (r + 1 < height) std::copy(solved, solved + width, padded + o * plane + (r + depth) * stride + side);
          }
        }
      }
    });
  });
  return x;
}

TORCH_LIBRARY_FRAGMENT(invertbench, m) { m.def("solve_rows(Tensor y, Tensor weight) -> Tensor"); }
TORCH_LIBRARY_IMPL(invertbench, CPU, m) { m.impl("solve_rows", TORCH_FN(solve_rows)); }

}  // namespace invertbench::solving
