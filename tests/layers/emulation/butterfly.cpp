// The launches of csrc/butterfly/cuda/kernels.cu, run on the processor; called by tests through plain functions.
//
// Each returns nullptr, or what was wrong. Numbers are float64 or float32 (`precise`); events may be bfloat16 (`half`).

#include <cmath>
#include <deque>
#include <limits>
#include <string>

using std::fabs;
using std::frexp;
using std::log;

#include "butterfly/cuda/driver.h"
#include "host_block.h"

namespace invertbench::emulation {

struct Job {
  const int64_t *plan, *layout;
  int64_t plan_length, layout_length;
  int shared, inverse, half;
  int64_t batch;
  int shared_bytes, chunks;
};

// What a launch may store to is said beforehand, and that it stored to all of it, checked after.
struct EmulatedDevice {
  DeviceLimits limits;
  int most_chunks = 1;
  int launches = 0, kept = 0, log_dets = 0;
  std::deque<std::vector<double>> memory;

  int64_t chunks(const TileStage& stage, int64_t batch, int64_t = 0) const {
    return std::max<int64_t>(1, std::min<int64_t>(most_chunks, (batch + stage.samples - 1) / stage.samples));
  }

  template <class T>
  T* allocate(int64_t count) {
    memory.emplace_back(size_t(count) * sizeof(T) / sizeof(double) + 1, std::numeric_limits<double>::quiet_NaN());
    T* found = reinterpret_cast<T*>(memory.back().data());
    for (int64_t i = 0; i < count; ++i) found[i] = std::numeric_limits<T>::quiet_NaN();
    return found;
  }

  void allow(Ledger& ledger, const Events& events, int64_t numbers, int number) const {
    if (events.half) ledger.allow(static_cast<const BFloat16*>(events.data), numbers);
    else if (number == 4) ledger.allow(static_cast<const float*>(events.data), numbers);
    else ledger.allow(static_cast<const double*>(events.data), numbers);
  }

  // Entries of the stage's part once each, of others never.
  static void check_events(const Ledger::Memory& memory, const TileStage& stage, int64_t dim, int64_t batch) {
    const int64_t channels = stage.colours * stage.groups, size = stage.count * stage.columns;
    std::vector<int> expected(size_t(dim), 0);
    for (int64_t e = stage.start; e < stage.start + size; ++e) {
      const int64_t inside = e % channels, at = inside % stage.colours * stage.groups + inside / stage.colours;
      ++expected[size_t(stage.positions ? at * stage.positions + e / channels : e)];
    }
    for (int64_t i = 0; i < batch * dim; ++i) {
      if (memory.stores[size_t(i)] != expected[size_t(i % dim)]) fail("an entry is not stored once");
    }
  }

  template <class T, bool SHARED, bool KEPT>
  void run_apply(const ApplyCall<T>& call, int64_t chunks) {
    Ledger ledger;
    allow(ledger, call.y, call.dim * call.batch, sizeof(T));
    if (call.log_det.log_det != nullptr) ledger.allow(call.log_det.log_det, 1);
    if (call.log_det.sums != nullptr) ledger.allow(call.log_det.sums, call.stage.tiles);
    const int64_t rows = chunks + (call.log_det.ranges > 0);
    for (int64_t row = rows; row-- > 0;) {
      for (int tile = 0; tile < call.stage.tiles; ++tile) {
        HostBlock<ApplyState<T, KEPT>> block(call.stage.threads, call.stage.bytes, ledger);
        apply_block<T, SHARED, KEPT>(block, call, tile, int(row), int(rows));
      }
    }
    check_events(ledger.memories[0], call.stage, call.dim, call.batch);
    ++launches;
    kept += KEPT;
  }

  template <class T>
  void apply(const ApplyCall<T>& call, int64_t chunks) {
    if (call.stage.shared) run_apply<T, true, false>(call, chunks);
    else if (call.stage.kept) run_apply<T, false, true>(call, chunks);
    else run_apply<T, false, false>(call, chunks);
  }

  template <class T, bool SHARED>
  void run_backward(const BackwardCall<T>& call, int64_t chunks) {
    const int64_t copies = copies_of(call.stage, chunks);
    Ledger ledger;
    allow(ledger, call.dx, call.dim * call.batch, sizeof(T));
    ledger.allow(call.partials, copies * 4 * call.weights.pitch);
    for (int64_t chunk = chunks; chunk-- > 0;) {
      for (int tile = 0; tile < call.stage.tiles; ++tile) {
        HostBlock<BackwardState<T>> block(call.stage.threads, call.stage.bytes, ledger);
        backward_tiles<T, SHARED>(block, call, tile, int(chunk), int(chunks));
      }
    }
    check_events(ledger.memories[0], call.stage, call.dim, call.batch);
    const auto& stores = ledger.memories[1].stores;
    for (size_t i = 0; i < stores.size(); ++i) {
      const int64_t number = int64_t(i) % call.weights.pitch - call.stage.weights_begin;
      if (stores[i] != (number >= 0 && number < call.stage.weights_count)) fail("a gradient is not stored once");
    }
    ++launches;
  }

  template <class T>
  void backward(const BackwardCall<T>& call, int64_t chunks) {
    if (call.stage.shared) run_backward<T, true>(call, chunks);
    else run_backward<T, false>(call, chunks);
  }

  template <class T>
  void finish(const FinishCall<T>& call) {
    Ledger ledger;
    ledger.allow(call.gradient, 4 * call.weights.pitch);
    for (int number = 0; number * FINISH_MATRICES < call.stage.weights_count; ++number) {
      HostBlock<Nothing> block(FINISH_THREADS, FINISH_BYTES, ledger);
      finish_matrices(block, call, number);
    }
  }

  template <class T>
  void log_det(const LogDetCall<T>& call, int blocks) {
    Ledger ledger;
    ledger.allow(call.sums, blocks);
    for (int number = 0; number < blocks; ++number) {
      HostBlock<Nothing> block(SUM_THREADS, SUM_THREADS * int(sizeof(double)), ledger);
      log_det_block(block, call, number, blocks);
    }
    ++log_dets;
  }

  template <class T>
  void log_det_total(const double* sums, int64_t count, T* log_det) {
    Ledger ledger;
    ledger.allow(log_det, 1);
    HostBlock<Nothing> block(SUM_THREADS, SUM_THREADS * int(sizeof(double)), ledger);
    invertbench::log_det_total(block, sums, count, log_det);
    ++log_dets;
  }
};

template <class T>
DeviceProblem<T> problem_of(const Job& job, const void* weight) {
  DeviceProblem<T> problem{parse_butterfly(job.plan, size_t(job.plan_length), job.shared), {}, {}, job.batch};
  if (job.inverse) reverse(problem.butterfly);
  if (job.layout_length) problem.layout = {job.layout[0], job.layout[1], job.layout[2]};
  problem.weights = {static_cast<const T*>(weight), problem.butterfly.matrices, job.inverse != 0};
  return problem;
}

EmulatedDevice device_of(const Job& job) {
  EmulatedDevice device;
  device.limits.shared_bytes = job.shared_bytes;
  device.most_chunks = job.chunks;
  return device;
}

template <class Body>
const char* guarded(const Body& body) {
  static std::string message;
  try {
    body();
    return nullptr;
  } catch (const std::exception& error) {
    message = error.what();
    return message.c_str();
  }
}

template <class T>
void forward(const Job& job, void* x, const void* weight, void* y, void* log_det, int* launches) {
  EmulatedDevice device = device_of(job);
  const DeviceProblem<T> problem = problem_of<T>(job, weight);
  apply_butterfly(device, problem, {x, job.half != 0}, {y, job.half != 0}, static_cast<T*>(log_det));
  launches[0] = device.launches;
  launches[1] = device.kept;
  launches[2] = device.log_dets;
}

template <class T>
void backward(const Job& job, void* x, const void* weight, void* dy, const void* grad_log_det, void* dx,
              void* gradient) {
  EmulatedDevice device = device_of(job);
  const bool half = job.half != 0;
  backward_butterfly(device, problem_of<T>(job, weight), {x, half}, {dy, half}, {dx, half},
                     static_cast<const T*>(grad_log_det), static_cast<T*>(gradient));
}

}  // namespace invertbench::emulation

using invertbench::emulation::Job;

extern "C" const char* emulate_apply(int precise, const Job* job, void* x, const void* weight, void* y, void* log_det,
                                     int* launches) {
  return invertbench::emulation::guarded([&] {
    if (precise) invertbench::emulation::forward<double>(*job, x, weight, y, log_det, launches);
    else invertbench::emulation::forward<float>(*job, x, weight, y, log_det, launches);
  });
}

extern "C" const char* emulate_backward(int precise, const Job* job, void* x, const void* weight, void* dy,
                                        const void* grad_log_det, void* dx, void* gradient) {
  return invertbench::emulation::guarded([&] {
    if (precise) invertbench::emulation::backward<double>(*job, x, weight, dy, grad_log_det, dx, gradient);
    else invertbench::emulation::backward<float>(*job, x, weight, dy, grad_log_det, dx, gradient);
  });
}
