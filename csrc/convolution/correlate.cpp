#include "convolution/correlate.h"

#include "operands.h"

namespace invertbench::correlation {

#define INVERTBENCH_BODY "convolution/correlate_planes.h"
#include "simd/each.h"

namespace {

constexpr int64_t SLABS = 8;
constexpr int64_t PRODUCTS_WORTH_A_THREAD = 500000;
constexpr int64_t BYTES_TOGETHER = 192 << 10;  // of the planes of events that are correlated together

}  // namespace

Frame frame_of(const at::Tensor& x, at::IntArrayRef sizes, at::IntArrayRef before, bool circular) {
  const bool image = x.dim() == 4;
  return {image ? x.size(2) : 1,   x.size(-1), image ? sizes[0] : 1, sizes.back(), image ? before[0] : 0,
          before.back(), circular};
}

at::Tensor correlate(const at::Tensor& x, const at::Tensor& of_y, const Frame& frame) {
  const int64_t count = x.size(0), inputs = x.size(1), outputs = of_y.size(1);
  TORCH_CHECK_VALUE(of_y.dim() == x.dim() && of_y.size(0) == count && of_y.sizes().slice(2) == x.sizes().slice(2),
                    "the gradient of a kernel: gradients of shape ", of_y.sizes(), " do not fit events of shape ",
                    x.sizes());
  at::Tensor found = at::empty({outputs, inputs, frame.rows, frame.columns},
                               x.options().memory_format(at::MemoryFormat::Contiguous));
  const at::Tensor events = rows(x), given = rows(of_y);
  in_precision("the gradient of a kernel", events, {given}, [&](auto zero) {
    using T = decltype(zero);
    const int64_t lanes = INVERTBENCH_BEST(LANES<T>);
    const int64_t plane = frame.plane(lanes), pitch = frame.results(lanes), places = frame.height * frame.width;
    std::vector<int64_t> distances = frame.distances(inputs, lanes);
    const int64_t wanted = int64_t(distances.size()), entries = rounded(wanted, INVERTBENCH_BEST(ENTRIES));
    distances.resize(entries, 0);
    const int64_t slabs = std::clamp<int64_t>(count * entries * outputs * pitch / PRODUCTS_WORTH_A_THREAD, 1,
                                              std::min(SLABS, std::max<int64_t>(count, 1)));
    const int64_t x_event = inputs * plane, g_event = outputs * pitch, event = x_event + g_event;
    const int64_t together = std::clamp<int64_t>(BYTES_TOGETHER / (event * int64_t(sizeof(T))), 1,
                                                 (count + slabs - 1) / slabs + 1);
    Scratch<double> totals;
    const ThreadMemory<T> memory(event * together, at::get_num_threads());
    double* const sums = totals.zeros(slabs * outputs * entries);
    const Rows<T> from(events), gradients(given);
    at::parallel_for(0, slabs, 1, [&](int64_t begin, int64_t end) {
      T *const padded = memory.own(), *const spreads = padded + x_event * together;
      for (int64_t slab = begin; slab < end; ++slab) {
        const int64_t last = (slab + 1) * count / slabs;
        for (int64_t first = slab * count / slabs, some; first < last; first += some) {
          some = std::min(together, last - first);
          for (int64_t n = 0; n < some; ++n) {
            for (int64_t i = 0; i < inputs; ++i) {
              pad(frame, from[first + n] + i * places, plane, padded + n * x_event + i * plane);
            }
            for (int64_t o = 0; o < outputs; ++o) {
              spread(frame, gradients[first + n] + o * places, pitch, spreads + n * g_event + o * pitch);
            }
          }
          INVERTBENCH_BEST(correlate<T>)(distances, outputs, some, padded, x_event, spreads, g_event, pitch,
                                         sums + slab * outputs * entries);
        }
      }
    });
    T* const to = found.data_ptr<T>();
    for (int64_t o = 0; o < outputs; ++o) {
      for (int64_t e = 0; e < wanted; ++e) {
        double sum = 0;
        for (int64_t slab = 0; slab < slabs; ++slab) sum += sums[(slab * outputs + o) * entries + e];
        to[o * wanted + e] = T(sum);
      }
    }
  });
  return found;
}

}  // namespace invertbench::correlation
