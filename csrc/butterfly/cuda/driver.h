// The launches of a butterfly, in order, on a device or its emulation, which allocates memory and starts them.
//
// A `Device` has
//   limits, chunks(stage, batch [, others])  the capacity of a block, and the number of shares of a batch
//   allocate<T>(count)                       memory that is valid until the work is done
//   apply, backward(call, chunks), finish(call), log_det(call, blocks), log_det_total(sums, count, log_det)
#pragma once

#include "butterfly/cuda/backward.h"

namespace invertbench {

template <class T>
struct DeviceProblem {
  Butterfly butterfly;  // of inverses: reversed
  EventLayout layout;
  Weights<T> weights;
  int64_t batch;

  planning::Purpose purpose(bool backward) const { return {int(sizeof(T)), backward}; }
};

// The remaining work of a log-det.
template <class T>
struct LogDet {
  std::vector<LogDetCall<T>> calls;
  double* sums = nullptr;  // `blocks` of them
  int blocks = 0;
  T* result = nullptr;
};

template <class T>
LogDet<T> log_det_of(const DeviceProblem<T>& problem, T* result) {
  std::vector<LogDetRange> ranges;
  if (problem.butterfly.shared) {
    for (const Part& part : problem.butterfly.parts) {
      for (const Factor& factor : part.factors) {
        ranges.push_back({factor.weight, part.size / (2 * factor.half), double(factor.half)});
      }
    }
  }
  if (ranges.empty()) ranges.push_back({0, problem.butterfly.shared ? 0 : problem.butterfly.matrices, 1});
  LogDet<T> found;
  found.result = result;
  for (const LogDetRange& range : ranges) {
    if (found.calls.empty() || found.calls.back().ranges == MOST_RANGES) {
      found.calls.emplace_back();
      found.calls.back().weights = problem.weights;
    }
    LogDetCall<T>& call = found.calls.back();
    call.range[call.ranges++] = range;
  }
  return found;
}

// Arguments of a launch for a log-det alone.
template <class T>
int blocks_of(const LogDetCall<T>& call) {
  int64_t most = 1;
  for (int r = 0; r < call.ranges; ++r) most = std::max(most, call.range[r].count / (SUMMED * SUM_THREADS));
  return int(std::min<int64_t>(most, 1024));
}

// Some of a part's factors, as a separate part.
inline Part factors_between(const Part& part, int first, int last) {
  return {part.start, part.size, part.depth,
          std::vector<Factor>(part.factors.begin() + first, part.factors.begin() + last)};
}

// One part from x to y, which may be the same memory. Intermediate results are in y, or in `between`, which has
// the precision of the arithmetic, if y has another. The first launch has blocks for `log_det`, and then clears it.
template <class T, class Device>
void apply_part(Device& device, const DeviceProblem<T>& problem, const Part& part, Events x, Events y, T*& between,
                LogDet<T>& log_det) {
  const std::vector<TileStage> stages =
      make_stages(part, problem.butterfly.shared, problem.purpose(false), device.limits, problem.layout);
  const int64_t dim = problem.butterfly.dim;
  for (size_t i = 0; i < stages.size(); ++i) {
    const TileStage& stage = stages[i];
    Events to = y;
    if (i + 1 < stages.size() && y.half) {
      if (between == nullptr) between = device.template allocate<T>(problem.batch * dim);
      to = {between, false};
    }
    ApplyCall<T> call{stage, problem.weights, x, to, dim, problem.batch, {}};
    const bool with_log_det = log_det.calls.size() == 1;
    if (with_log_det) {
      call.log_det = log_det.calls[0];
      log_det.calls.clear();
      if (stage.tiles > 1) {
        call.log_det.sums = log_det.sums = device.template allocate<double>(stage.tiles);
        log_det.blocks = stage.tiles;
      } else {
        call.log_det.log_det = log_det.result;
      }
    }
    device.apply(call, device.chunks(stage, problem.batch, with_log_det ? stage.tiles : 0));
    x = to;
  }
}

// Separate launches for the log-det, if the blocks of other launches have not computed it.
template <class T, class Device>
void finish_log_det(Device& device, LogDet<T>& log_det) {
  if (log_det.calls.empty() && log_det.sums == nullptr) return;
  if (log_det.sums == nullptr) {
    for (const LogDetCall<T>& call : log_det.calls) log_det.blocks += blocks_of(call);
    log_det.sums = device.template allocate<double>(log_det.blocks);
    double* sums = log_det.sums;
    for (LogDetCall<T>& call : log_det.calls) {
      call.sums = sums;
      device.log_det(call, blocks_of(call));
      sums += blocks_of(call);
    }
  }
  device.log_det_total(log_det.sums, log_det.blocks, log_det.result);
}

// y, and the log-det if it is not nullptr.
template <class T, class Device>
void apply_butterfly(Device& device, const DeviceProblem<T>& problem, Events x, Events y, T* result) {
  T* between = nullptr;
  LogDet<T> log_det = result == nullptr ? LogDet<T>() : log_det_of(problem, result);
  if (problem.batch > 0) {
    for (const Part& part : problem.butterfly.parts) apply_part(device, problem, part, x, y, between, log_det);
  }
  finish_log_det(device, log_det);
}

// The gradients of x and of the weight, (2, 2, P), all written. Without `dy` only the gradient of the
// log-det by the weight, and dx is unchanged.
template <class T, class Device>
void backward_butterfly(Device& device, const DeviceProblem<T>& problem, Events x, Events dy, Events dx,
                        const T* grad_log_det, T* gradient) {
  const Butterfly& butterfly = problem.butterfly;
  const bool any = dy.data != nullptr && problem.batch > 0;
  const int64_t numbers = problem.batch * butterfly.dim;
  std::vector<std::vector<TileStage>> all;
  std::vector<T*> outputs;  // of all launches but the last, computed again
  int64_t copies = 0;
  size_t launches = 0;
  for (const Part& part : butterfly.parts) {
    all.push_back(make_stages(part, butterfly.shared, problem.purpose(true), device.limits, problem.layout));
    launches = std::max(launches, all.back().size());
    for (const TileStage& stage : all.back()) {
      copies = std::max(copies, copies_of(stage, device.chunks(stage, problem.batch)));
    }
  }
  T *partials = nullptr, *between = nullptr, *grads = nullptr;
  LogDet<T> none;
  if (any) {
    partials = device.template allocate<T>(copies * 4 * butterfly.matrices);
    for (size_t i = 1; i < launches; ++i) outputs.push_back(device.template allocate<T>(numbers));
    if (dx.half && launches > 1) grads = device.template allocate<T>(numbers);
  }
  for (size_t p = 0; p < all.size(); ++p) {
    const Part& part = butterfly.parts[p];
    const std::vector<TileStage>& stages = all[p];
    if (part.factors.empty()) {
      if (any) apply_part(device, problem, part, dy, dx, between, none);
      continue;
    }
    for (size_t i = 0; any && i + 1 < stages.size(); ++i) {
      const Part again = factors_between(part, stages[i].part_first, stages[i].part_last);
      apply_part(device, problem, again, i == 0 ? x : Events{outputs[i - 1], false}, Events{outputs[i], false},
                 between, none);
    }
    for (size_t i = stages.size(); i-- > 0;) {
      const TileStage& stage = stages[i];
      const int64_t chunks = device.chunks(stage, problem.batch);
      if (any) {
        const Events own{grads, false};
        const Events from = i + 1 == stages.size() ? dy : (grads == nullptr ? dx : own);
        const Events to = i == 0 || grads == nullptr ? dx : own;
        device.backward(BackwardCall<T>{stage, problem.weights, i == 0 ? x : Events{outputs[i - 1], false}, from, to,
                                        partials, butterfly.dim, problem.batch},
                        chunks);
      }
      device.finish(FinishCall<T>{stage, problem.weights, partials, any ? copies_of(stage, chunks) : 0, grad_log_det,
                                  gradient});
    }
  }
}

}  // namespace invertbench
