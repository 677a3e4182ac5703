// An Emerging convolution and its inverse on the processor: `invertbench::emerging` and
// `invertbench::emerging_inverse`, declared in emerging/operators.cpp.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "convolution/correlate.h"
#include "emerging/cpu/plane_problem.h"
#include "emerging/cpu/tiles.h"
#include "emerging/operands.h"
#include "thread_memory.h"

#define INVERTBENCH_BODY "emerging/cpu/body.h"
#include "simd/each.h"

namespace invertbench {
namespace {

// One way to do the work in tiles: `run` serves `events` events at a time in a tile of `numbers` numbers; `cost` is in
// cycles, at first of one tile, then of all of them.
template <typename T>
struct Way {
  int64_t events, numbers;
  void (*run)(const Tiled<T>&, int64_t, T*);
  double cost;
};

// Rough cycles of a pixel's solve for `width` vectors: multiply-adds at two a cycle, the weights that are loaded for
// them, and the chain of dependent operations through the channels.
double solve_cycles(const Sizes& sizes, double taps, int width) {
  const double channels = static_cast<double>(sizes.channels);
  return channels * channels * taps * (width + 0.4) / 2 + 10 * channels + 20;
}

// The same for both convolutions of a pixel, which have no chain: multiply-adds, and copies into and out of the tile.
double apply_cycles(const Sizes& sizes, double taps, int width, int64_t lanes) {
  const double channels = static_cast<double>(sizes.channels);
  return channels * channels * (taps - 0.5) * (width + 0.1) + 2 * channels * static_cast<double>(width * lanes);
}

// The same for both convolutions of an event in planes, one event at a time, which are laid out.
template <typename T>
double plane_cycles(const Planes<T>& work, int64_t lanes) {
  const double channels = static_cast<double>(work.channels);
  const double taps = static_cast<double>(work.rows() * work.columns()) - 0.5;
  const double weights = channels * (channels * taps + static_cast<double>(LARGEST_BLOCK) / 2);
  const double vectors = static_cast<double>((work.pixels + lanes - 1) / lanes);
  return weights * vectors * 1.1 + channels * static_cast<double>(work.height * work.width + 150);
}

// Keep the way that takes the fewest cycles until the last of `threads` is done.
template <typename T>
void consider(Way<T>& best, const Way<T>& way, int64_t events, int64_t threads) {
  const int64_t tiles = (events + way.events - 1) / way.events;
  const double cost = way.cost * static_cast<double>((tiles + threads - 1) / threads);
  if (best.run == nullptr || cost < best.cost) best = {way.events, way.numbers, way.run, cost};
}

#define INVERTBENCH_CONSIDER(ISA, WIDTH)                                                                    \
  consider<T>(best,                                                                                         \
              {WIDTH * ISA::LANES<T>, ISA::events_tile<T, WIDTH>(work),                                     \
               inverse ? ISA::invert_events<T, WIDTH> : ISA::apply_events<T, WIDTH>,                        \
               pixels * (inverse ? solve_cycles(work, inside, WIDTH)                                        \
                                 : apply_cycles(work, inside, WIDTH, ISA::LANES<T>))},                      \
              work.events, threads);                                                                        \
  if (inverse && shorter > 1) {                                                                             \
    consider<T>(best,                                                                                       \
                {1, ISA::diagonals_tile<T, WIDTH>(work), ISA::invert_diagonals<T, WIDTH>,                   \
                 diagonals * std::ceil(shorter / (WIDTH * ISA::LANES<T>)) * solve_cycles(work, all, WIDTH)}, \
                work.events, threads);                                                                      \
  }

template <typename T>
Way<T> choose(const Problem<T>& work, int64_t threads, bool inverse) {
  const double height = static_cast<double>(work.height), width = static_cast<double>(work.width);
  const double rows = static_cast<double>(work.rows()), columns = static_cast<double>(work.columns());
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

// The number of threads for work of so many cycles; below a limit, a second one costs more than it saves.
int64_t threads_for(double cycles) {
  constexpr double worth_a_thread = 30000;
  return cycles < worth_a_thread || at::in_parallel_region() ? 1 : at::get_num_threads();
}

// Call run(task, memory) for each task, with memory of the thread.
template <typename T, typename Run>
void share(int64_t tasks, int64_t threads, const ThreadMemory<T>& memory, const Run& run) {
  at::parallel_for(0, tasks, threads == 1 ? tasks : 1, [&](int64_t begin, int64_t end) {
    T* const own = memory.own();
    for (int64_t task = begin; task < end; ++task) run(task, own);
  });
}

template <typename T>
void run_tiles(const Problem<T>& problem, const Way<T>& way, int64_t threads) {
  const Tiled<T> work{problem, pack_taps(problem, problem.weight1, false),
                      pack_taps(problem, problem.weight2, true)};
  const int64_t tiles = (work.events + way.events - 1) / way.events;
  share(tiles, threads, ThreadMemory<T>(way.numbers, std::min(threads, tiles)),
        [&](int64_t tile, T* memory) { way.run(work, tile * way.events, memory); });
}

template <typename T>
void run_planes(Planes<T>& work, int64_t threads) {
  work.first = pack_blocks(work, work.weight1, false);
  work.second = pack_blocks(work, work.weight2, true);
  share(work.events, threads, ThreadMemory<T>(work.numbers(), std::min(threads, work.events), true),
        [&](int64_t event, T* memory) { INVERTBENCH_BEST(apply_event<T>)(work, event, memory); });
}

template <typename T>
void invert(const Problem<T>& problem) {
  const int64_t threads = threads_for(choose(problem, 1, true).cost);
  run_tiles(problem, choose(problem, threads, true), threads);
}

// Apply both convolutions in planes or in tiles, whichever takes fewer cycles.
template <typename T>
void apply(const Problem<T>& problem) {
  Planes<T> planes{problem};
  lay_out(planes);
  const double cycles = plane_cycles(planes, INVERTBENCH_BEST(LANES<T>));  // of one event
  const double all_cycles = cycles * static_cast<double>(planes.events);
  const int64_t threads = threads_for(std::min(all_cycles, choose(problem, 1, false).cost));
  const Way<T> way = choose(problem, threads, false);
  if (way.cost < cycles * static_cast<double>((planes.events + threads - 1) / threads)) {
    run_tiles(problem, way, threads);
  } else {
    run_planes(planes, threads);
  }
}

// n times the sum of the logarithms of both diagonals.
template <typename T>
double log_det_of(const Problem<T>& problem) {
  const int64_t taps = problem.kernel_rows * problem.kernel_columns;
  double sum = 0;
  for (int64_t c = 0; c < problem.channels; ++c) {
    const int64_t at = c * (problem.channels + 1) * taps + taps / 2;
    for (const T* weight : {problem.weight1, problem.weight2}) {
      sum += std::log(std::abs(static_cast<double>(weight[at])));
    }
  }
  return static_cast<double>(problem.height * problem.width) * sum;
}

// Call run(problem) with the problem of these tensors, in their precision. `between` has no entries if not wanted.
template <typename Run>
void with_problem(const at::Tensor& events, const at::Tensor& weight1, const at::Tensor& weight2,
                  const std::optional<at::Tensor>& bias, const at::Tensor& output, const at::Tensor& between,
                  const Run& run) {
  const at::Tensor input = events.contiguous(), first = weight1.contiguous(), second = weight2.contiguous();
  const at::Tensor offset = bias.has_value() ? bias->contiguous() : at::Tensor();
  const bool image = input.dim() == 4;
  const Sizes sizes{input.size(0),  input.size(1), image ? input.size(2) : 1,
                    input.size(-1), image ? first.size(2) : 1, first.size(-1)};
  const auto call = [&](auto zero) {
    using T = decltype(zero);
    run(Problem<T>{sizes, input.const_data_ptr<T>(), first.const_data_ptr<T>(), second.const_data_ptr<T>(),
                   offset.defined() ? offset.const_data_ptr<T>() : nullptr, output.data_ptr<T>(),
                   between.numel() > 0 ? between.data_ptr<T>() : nullptr});
  };
  if (input.scalar_type() == at::kFloat) {
    call(0.0F);
  } else {
    call(0.0);
  }
}

at::Tensor emerging_inverse(const at::Tensor& y, const at::Tensor& weight1, const at::Tensor& weight2,
                            const std::optional<at::Tensor>& bias) {
  check_emerging_operands("emerging_inverse", y, weight1, weight2, bias);
  const auto options = y.options().memory_format(at::MemoryFormat::Contiguous);
  const at::Tensor output = at::empty(y.sizes(), options);
  with_problem(y, weight1, weight2, bias, output, at::empty({0}, options), [&](const auto& problem) {
    if (output.numel() > 0) invert(problem);
  });
  return output;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> emerging(const at::Tensor& x, const at::Tensor& weight1,
                                                        const at::Tensor& weight2,
                                                        const std::optional<at::Tensor>& bias, bool keep) {
  check_emerging_operands("emerging", x, weight1, weight2, bias);
  const auto options = x.options().memory_format(at::MemoryFormat::Contiguous);
  const at::Tensor output = at::empty(x.sizes(), options), log_det = at::empty({}, x.options());
  const at::Tensor between = keep ? at::empty(x.sizes(), options) : at::empty({0}, x.options());
  with_problem(x, weight1, weight2, bias, output, between, [&](const auto& problem) {
    log_det.fill_(log_det_of(problem));
    if (output.numel() > 0) apply(problem);
  });
  return {output, log_det, between};
}

// The gradient of one kernel, with that of the log-det if it is given.
at::Tensor emerging_weight(const at::Tensor& x, const at::Tensor& of_y, const at::Tensor& weight,
                           const std::optional<at::Tensor>& of_log_det, bool turned) {
  check_emerging_operands("emerging_weight", x, weight, weight, std::nullopt);
  std::vector<int64_t> sizes, before;
  for (int64_t axis = 2; axis < weight.dim(); ++axis) {
    sizes.push_back(std::min(weight.size(axis) / 2 + 1, x.size(axis)));
    before.push_back(turned ? sizes.back() - 1 : 0);
  }
  const Frame frame = frame_of(x, sizes, before, false);
  const at::Tensor found = correlate(x, of_y, frame), kernel = weight.contiguous();
  at::Tensor gradient = at::zeros(weight.sizes(), x.options().memory_format(at::MemoryFormat::Contiguous));
  const int64_t channels = x.size(1), columns = weight.size(-1), taps = kernel[0][0].numel();
  const auto fill = [&](auto zero) {
    using T = decltype(zero);
    const T *from = found.const_data_ptr<T>(), *const own = kernel.const_data_ptr<T>();
    const T scale = of_log_det ? of_log_det->item<T>() * T(frame.height * frame.width) : T(0);
    for (int64_t output = 0; output < channels; ++output) {
      for (int64_t input = 0; input < channels; ++input, from += frame.rows * frame.columns) {
        T* const centre = gradient.data_ptr<T>() + (output * channels + input) * taps + taps / 2;
        T* const first = centre - frame.above * columns - frame.left;
        for (int64_t a = 0; a < frame.rows; ++a) {
          std::copy_n(from + a * frame.columns, frame.columns, first + a * columns);
        }
        if (turned ? input < output : input > output) *centre = T(0);
        if (input == output && of_log_det) *centre += scale / own[centre - gradient.data_ptr<T>()];
      }
    }
  };
  x.scalar_type() == at::kFloat ? fill(0.0F) : fill(0.0);
  return gradient;
}

TORCH_LIBRARY_IMPL(invertbench, CPU, m) {
  m.impl("emerging", TORCH_FN(emerging));
  m.impl("emerging_weight", TORCH_FN(emerging_weight));
  m.impl("emerging_inverse", TORCH_FN(emerging_inverse));
}

}  // namespace
}  // namespace invertbench
