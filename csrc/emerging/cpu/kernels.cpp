#include "emerging/cpu/kernels.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "emerging/cpu/plane_problem.h"
#include "emerging/cpu/tiles.h"
#include "simd/cpu.h"
#include "thread_memory.h"

namespace invertbench::emerging {

#define INVERTBENCH_BODY "emerging/cpu/body.h"
#define INVERTBENCH_HALF
#include "simd/each.h"

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
  INVERTBENCH_CONSIDER(INVERTBENCH_SET, 1)
  INVERTBENCH_CONSIDER(INVERTBENCH_SET, 2)
#if defined(INVERTBENCH_FOR_AVX512)  // half a vector may leave no thread without work
  INVERTBENCH_CONSIDER(avx2, 1)
  INVERTBENCH_CONSIDER(avx2, 2)
#endif
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

}  // namespace

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

#define INVERTBENCH_INSTANTIATE(T)           \
  template void apply(const Problem<T>&);    \
  template void invert(const Problem<T>&);   \
  template double log_det_of(const Problem<T>&);
INVERTBENCH_INSTANTIATE(float)
INVERTBENCH_INSTANTIATE(double)

}  // namespace invertbench::emerging
