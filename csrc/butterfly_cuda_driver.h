// The launches of a butterfly, in order, for whoever can allocate memory and start them: a device, or its emulation.
//
// A `Device` has
//   limits, chunks(stage, batch)          what a block may hold, and into how many shares a batch is cut
//   allocate<T>(count)                    memory that lasts until the work is done
//   apply, backward, finish, log_det(call [, chunks]), log_det_total(sums, count, log_det)
#pragma once

#include "butterfly_cuda_backward.h"

namespace invertbench {

template <class T>
struct DeviceProblem {
  Butterfly butterfly;  // of inverses: reversed
  EventLayout layout;
  Weights<T> weights;
  int64_t batch;

  planning::Purpose purpose(bool backward) const { return {int(sizeof(T)), backward}; }
};

// Some of a part's factors, as a part of their own.
inline Part factors_between(const Part& part, int first, int last) {
  return {part.start, part.size, part.depth,
          std::vector<Factor>(part.factors.begin() + first, part.factors.begin() + last)};
}

// One part from x to y, which may be the same memory. What lies between two launches is in y; in `between`, which has
// the precision of the arithmetic, if y has not.
template <class T, class Device>
void apply_part(Device& device, const DeviceProblem<T>& problem, const Part& part, Events x, Events y, T*& between) {
  const std::vector<TileStage> stages =
      make_stages(part, problem.butterfly.shared, problem.purpose(false), device.limits, problem.layout);
  const int64_t dim = problem.butterfly.dim;
  for (size_t i = 0; i < stages.size(); ++i) {
    Events to = y;
    if (i + 1 < stages.size() && y.half) {
      if (between == nullptr) between = device.template allocate<T>(problem.batch * dim);
      to = {between, false};
    }
    device.apply(ApplyCall<T>{stages[i], problem.weights, x, to, dim, problem.batch},
                 device.chunks(stages[i], problem.batch));
    x = to;
  }
}

template <class T, class Device>
void apply_butterfly(Device& device, const DeviceProblem<T>& problem, Events x, Events y) {
  T* between = nullptr;
  if (problem.batch == 0) return;
  for (const Part& part : problem.butterfly.parts) apply_part(device, problem, part, x, y, between);
}

template <class T, class Device>
void log_det_butterfly(Device& device, const DeviceProblem<T>& problem, T* log_det) {
  const Butterfly& butterfly = problem.butterfly;
  std::vector<TileStage> stages;
  if (!butterfly.shared) {
    stages.emplace_back();
    stages.back().weights_count = butterfly.matrices;
  }
  for (const Part& part : butterfly.parts) {
    if (!butterfly.shared || part.factors.empty()) continue;
    for (const TileStage& stage : make_stages(part, true, problem.purpose(false), device.limits, problem.layout)) {
      stages.push_back(stage);
    }
  }
  int64_t count = 0;
  for (const TileStage& stage : stages) count += (stage.weights_count + SUM_TILE - 1) / SUM_TILE;
  double* sums = device.template allocate<double>(std::max<int64_t>(count, 1));
  int64_t at = 0;
  for (const TileStage& stage : stages) {
    device.log_det(LogDetCall<T>{stage, problem.weights, sums + at});
    at += (stage.weights_count + SUM_TILE - 1) / SUM_TILE;
  }
  device.log_det_total(sums, count, log_det);
}

// The gradients of x and of the weight, (2, 2, P), every number of which is written. Without `dy` only what the
// log-det gives the weight, and dx is left alone.
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
  if (any) {
    partials = device.template allocate<T>(copies * 4 * butterfly.matrices);
    for (size_t i = 1; i < launches; ++i) outputs.push_back(device.template allocate<T>(numbers));
    if (dx.half && launches > 1) grads = device.template allocate<T>(numbers);
  }
  for (size_t p = 0; p < all.size(); ++p) {
    const Part& part = butterfly.parts[p];
    const std::vector<TileStage>& stages = all[p];
    if (part.factors.empty()) {
      if (any) apply_part(device, problem, part, dy, dx, between);
      continue;
    }
    for (size_t i = 0; any && i + 1 < stages.size(); ++i) {
      const Part again = factors_between(part, stages[i].part_first, stages[i].part_last);
      apply_part(device, problem, again, i == 0 ? x : Events{outputs[i - 1], false}, Events{outputs[i], false},
                 between);
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
