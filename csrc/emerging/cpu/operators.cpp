// An Emerging convolution and its inverse on the processor: `invertbench::emerging` and
// `invertbench::emerging_inverse`, declared in emerging/operators.cpp.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "simd/cpu.h"
#include "emerging/cpu/application.h"
#include "emerging/cpu/problem.h"
#include "emerging/operands.h"

#define ISA_NAMESPACE portable
#define ISA_TARGET
#define ISA_BYTES 16
#include "emerging/cpu/solve.h"
#include "emerging/cpu/diagonals.h"
#include "emerging/cpu/apply.h"
#undef ISA_NAMESPACE
#undef ISA_TARGET
#undef ISA_BYTES

#if defined(__x86_64__)
#define ISA_NAMESPACE avx2
#define ISA_TARGET __attribute__((target("avx2,fma")))
#define ISA_BYTES 32
#include "emerging/cpu/solve.h"
#include "emerging/cpu/diagonals.h"
#include "emerging/cpu/apply.h"
#undef ISA_NAMESPACE
#undef ISA_TARGET
#undef ISA_BYTES

#define ISA_NAMESPACE avx512
#define ISA_TARGET __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma")))
#define ISA_BYTES 64
#include "emerging/cpu/solve.h"
#include "emerging/cpu/diagonals.h"
#include "emerging/cpu/apply.h"
#undef ISA_NAMESPACE
#undef ISA_TARGET
#undef ISA_BYTES
#endif

namespace invertbench {
namespace {

// One way to do the work: `run` inverts `events` events at a time in a tile of `numbers` numbers.
template <typename T>
struct Way {
  int64_t events, numbers;
  void (*run)(const Inversion<T>&, int64_t, T*);
  double cost;
};

// Rough cycles of a pixel's solve for `width` vectors: multiply-adds at two a cycle, the weights that are loaded for
// them, and the chain of dependent operations through the channels.
template <typename T>
double pixel_cycles(const Inversion<T>& work, double taps, int width) {
  const double channels = static_cast<double>(work.channels);
  return channels * channels * taps * (width + 0.4) / 2 + 10 * channels + 20;
}

// Keep the way that takes the fewest cycles until the last of `threads` is done.
template <typename T>
void consider(Way<T>& best, const Way<T>& way, int64_t events, int64_t threads) {
  const int64_t tiles = (events + way.events - 1) / way.events;
  const double cost = way.cost * static_cast<double>((tiles + threads - 1) / threads);
  if (best.run == nullptr || cost < best.cost) best = {way.events, way.numbers, way.run, cost};
}

#define INVERTBENCH_CONSIDER(ISA, WIDTH)                                                                      \
  consider<T>(best,                                                                                           \
              {WIDTH * ISA::LANES<T>, ISA::events_tile<T, WIDTH>(work), ISA::invert_events<T, WIDTH>,         \
               pixels * pixel_cycles(work, inside, WIDTH)},                                                   \
              work.events, threads);                                                                          \
  if (shorter > 1) {                                                                                          \
    consider<T>(best,                                                                                         \
                {1, ISA::diagonals_tile<T, WIDTH>(work), ISA::invert_diagonals<T, WIDTH>,                     \
                 diagonals * std::ceil(shorter / (WIDTH * ISA::LANES<T>)) * pixel_cycles(work, all, WIDTH)},  \
                work.events, threads);                                                                        \
  }

template <typename T>
Way<T> choose(const Inversion<T>& work, int64_t threads) {
  const double height = static_cast<double>(work.height), width = static_cast<double>(work.width);
  const double rows = static_cast<double>(work.first.rows), columns = static_cast<double>(work.first.columns);
  const double pixels = height * width, diagonals = height + width - 1, shorter = std::min(height, width);
  const double all = rows * columns;
  // Of these lie inside the event, in the mean over its pixels:
  const double inside = (rows - rows * (rows - 1) / (2 * height)) * (columns - columns * (columns - 1) / (2 * width));
  Way<T> best{};
#if defined(__x86_64__)
  if (instructions() == Instructions::avx512) {
    INVERTBENCH_CONSIDER(avx512, 1)
    INVERTBENCH_CONSIDER(avx512, 2)
  }
  if (instructions() != Instructions::portable) {  // half a vector of AVX-512 may leave no thread without work
    INVERTBENCH_CONSIDER(avx2, 1)
    INVERTBENCH_CONSIDER(avx2, 2)
    return best;
  }
#endif
  INVERTBENCH_CONSIDER(portable, 1)
  INVERTBENCH_CONSIDER(portable, 2)
  return best;
}

// Below this, a second thread costs more than it saves.
constexpr double CYCLES_WORTH_A_THREAD = 30000;

template <typename T>
void invert(const Inversion<T>& work) {
  Way<T> way = choose(work, 1);
  const bool alone = way.cost < CYCLES_WORTH_A_THREAD || at::in_parallel_region() || at::get_num_threads() == 1;
  const int64_t threads = alone ? 1 : at::get_num_threads();
  if (!alone) way = choose(work, threads);
  const int64_t count = (work.events + way.events - 1) / way.events;
  // All tiles in one block, which the allocator can reuse next time: allocations by threads would be returned.
  const std::unique_ptr<T[]> tiles(new T[std::min(threads, count) * way.numbers]);
  at::parallel_for(0, count, alone ? count : 1, [&](int64_t begin, int64_t end) {
    T* tile = tiles.get() + at::get_thread_num() * way.numbers;
    for (int64_t t = begin; t < end; ++t) way.run(work, t * way.events, tile);
  });
}

at::Tensor emerging_inverse(const at::Tensor& y, const at::Tensor& weight1, const at::Tensor& weight2,
                            const std::optional<at::Tensor>& bias) {
  check_emerging_operands("emerging_inverse", y, weight1, weight2, bias);
  const at::Tensor input = y.contiguous(), first = weight1.contiguous(), second = weight2.contiguous();
  const at::Tensor offset = bias.has_value() ? bias->contiguous() : at::Tensor();
  at::Tensor output = at::empty(y.sizes(), y.options().memory_format(at::MemoryFormat::Contiguous));
  if (output.numel() == 0) return output;
  const bool image = y.dim() == 4;
  const int64_t channels = y.size(1), height = image ? y.size(2) : 1, width = y.size(-1);
  const int64_t rows = image ? first.size(2) : 1, columns = first.size(-1);
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    invert<T>({y.size(0), channels, height, width, input.const_data_ptr<T>(),
               offset.defined() ? offset.const_data_ptr<T>() : nullptr, output.data_ptr<T>(),
               pack_taps(first.const_data_ptr<T>(), channels, rows, columns, height, width, false),
               pack_taps(second.const_data_ptr<T>(), channels, rows, columns, height, width, true)});
  };
  if (y.scalar_type() == at::kFloat) {
    run(0.0F);
  } else {
    run(0.0);
  }
  return output;
}

template <typename T>
void apply(const Application<T>& work) {
  void (*run)(const Application<T>&, int64_t, T*) = portable::apply_event<T>;
#if defined(__x86_64__)
  if (instructions() == Instructions::avx512) run = avx512::apply_event<T>;
  if (instructions() == Instructions::avx2) run = avx2::apply_event<T>;
#endif
  // Some multiply-adds of a vector take a cycle, as do a few numbers that are copied.
  double cycles = 0;
  for (const auto* blocks : {&work.first, &work.second}) {
    for (const auto& block : *blocks) cycles += static_cast<double>(block.weights.size());
  }
  cycles = (cycles / 16 + static_cast<double>(work.channels)) * static_cast<double>(work.pixels * work.events);
  const bool alone = cycles < CYCLES_WORTH_A_THREAD || at::in_parallel_region() || at::get_num_threads() == 1;
  const int64_t threads = alone ? 1 : std::min<int64_t>(at::get_num_threads(), work.events);
  const int64_t numbers = work.numbers();
  const std::unique_ptr<T[]> planes(new T[threads * numbers]());
  at::parallel_for(0, work.events, alone ? work.events : 1, [&](int64_t begin, int64_t end) {
    T* own = planes.get() + (alone ? 0 : at::get_thread_num()) * numbers;
    for (int64_t event = begin; event < end; ++event) run(work, event, own);
  });
}

// n times the sum of the logarithms of both diagonals.
template <typename T>
double log_det_of(const T* weight1, const T* weight2, int64_t channels, int64_t taps, int64_t positions) {
  double sum = 0;
  for (int64_t c = 0; c < channels; ++c) {
    const int64_t at = c * (channels + 1) * taps + taps / 2;
    sum += std::log(std::abs(static_cast<double>(weight1[at]))) + std::log(std::abs(static_cast<double>(weight2[at])));
  }
  return static_cast<double>(positions) * sum;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> emerging(const at::Tensor& x, const at::Tensor& weight1,
                                                        const at::Tensor& weight2,
                                                        const std::optional<at::Tensor>& bias, bool keep) {
  check_emerging_operands("emerging", x, weight1, weight2, bias);
  const at::Tensor input = x.contiguous(), first = weight1.contiguous(), second = weight2.contiguous();
  const at::Tensor offset = bias.has_value() ? bias->contiguous() : at::Tensor();
  const auto options = x.options().memory_format(at::MemoryFormat::Contiguous);
  const at::Tensor output = at::empty(x.sizes(), options), log_det = at::empty({}, x.options());
  const at::Tensor between = keep ? at::empty(x.sizes(), options) : at::empty({0}, x.options());
  const bool image = x.dim() == 4;
  const int64_t channels = x.size(1), height = image ? x.size(2) : 1, width = x.size(-1);
  const int64_t kernel_rows = image ? first.size(2) : 1, kernel_columns = first.size(-1);
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    const T *const w1 = first.const_data_ptr<T>(), *const w2 = second.const_data_ptr<T>();
    *log_det.data_ptr<T>() =
        static_cast<T>(log_det_of(w1, w2, channels, kernel_rows * kernel_columns, height * width));
    if (output.numel() == 0) return;
    Application<T> work{};
    work.events = x.size(0);
    work.channels = channels;
    work.height = height;
    work.width = width;
    work.input = input.const_data_ptr<T>();
    work.bias = offset.defined() ? offset.const_data_ptr<T>() : nullptr;
    work.output = output.data_ptr<T>();
    work.between = keep ? between.data_ptr<T>() : nullptr;
    const int64_t rows = std::min(kernel_rows / 2 + 1, height), columns = std::min(kernel_columns / 2 + 1, width);
    lay_out(work, rows, columns);
    work.first = pack_applied(work, w1, kernel_rows, kernel_columns, rows, columns, false);
    work.second = pack_applied(work, w2, kernel_rows, kernel_columns, rows, columns, true);
    apply(work);
  };
  if (x.scalar_type() == at::kFloat) {
    run(0.0F);
  } else {
    run(0.0);
  }
  return {output, log_det, between};
}

TORCH_LIBRARY_IMPL(invertbench, CPU, m) {
  m.impl("emerging", TORCH_FN(emerging));
  m.impl("emerging_inverse", TORCH_FN(emerging_inverse));
}

}  // namespace
}  // namespace invertbench
