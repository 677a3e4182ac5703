// The operators of butterfly/operators.cpp for CUDA tensors: the same names and schemas. Also for events in bfloat16,
// with the weight, its gradient and the log-det in float32.
//
// All work is launched on the current stream without waiting: the operators may be captured in a graph.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "butterfly/cuda/api.h"
#include "butterfly/cuda/driver.h"

namespace invertbench {
namespace {

using at::IntArrayRef;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Two = std::tuple<Tensor, Tensor>;

void check(const char* error) { TORCH_CHECK(error == nullptr, "butterfly: the CUDA runtime says: ", error); }

// The device for the driver's launches: the tensor's device and its current stream.
struct TorchDevice {
  const c10::cuda::CUDAGuard guard;
  const at::TensorOptions bytes;
  const bool wide;  // the arithmetic is float64
  void* const stream;
  DeviceFacts facts;
  DeviceLimits limits;
  std::vector<Tensor> held;

  explicit TorchDevice(const Tensor& like)
      : guard(like.device()),
        bytes(like.options().dtype(at::kByte)),
        wide(like.scalar_type() == at::kDouble),
        stream(c10::cuda::getCurrentCUDAStream(like.device().index()).stream()) {
    check(device_facts(like.device().index(), facts));
    limits = facts.limits;
  }

  template <class T>
  T* allocate(int64_t count) {
    held.push_back(at::empty({count * int64_t(sizeof(T))}, bytes));
    return reinterpret_cast<T*>(held.back().mutable_data_ptr());
  }
  int64_t chunks(const TileStage& stage, int64_t batch, int64_t others = 0) const {
    return chunks_of(facts, stage, wide, others, batch);
  }

  template <class T>
  void apply(const ApplyCall<T>& call, int64_t chunks) const {
    check(start_apply(call, facts, chunks, stream));
  }
  template <class T>
  void backward(const BackwardCall<T>& call, int64_t chunks) const {
    check(start_backward(call, facts, chunks, stream));
  }
  template <class T>
  void finish(const FinishCall<T>& call) const {
    check(start_finish(call, stream));
  }
  template <class T>
  void log_det(const LogDetCall<T>& call, int blocks) const {
    check(start_log_det(call, blocks, stream));
  }
  template <class T>
  void log_det_total(const double* sums, int64_t count, T* log_det) const {
    check(start_log_det_total(sums, count, log_det, stream));
  }
};

Events events_of(const Tensor& tensor) {
  return {const_cast<void*>(tensor.const_data_ptr()), tensor.scalar_type() == at::kBFloat16};
}

// Allocated with the layout of the Meta implementations in butterfly/operators.cpp.
Tensor like(const Tensor& x) { return at::empty_like(x, at::MemoryFormat::Contiguous); }

// `inverse`: the problem of the inverse map. Its matrices are inverted as they are read.
template <class T>
DeviceProblem<T> problem_of(const Tensor& x, const Tensor& weight, IntArrayRef plan, IntArrayRef layout, bool shared,
                            bool inverse) {
  DeviceProblem<T> problem{parse_butterfly(plan.data(), plan.size(), shared), {}, {}, x.size(0)};
  const Butterfly& found = problem.butterfly;
  TORCH_CHECK(c10::multiply_integers(x.sizes().slice(1)) == found.dim, "butterfly: events of shape ",
              x.sizes().slice(1), " for a plan of ", found.dim, " entries");
  TORCH_CHECK(found.dim < int64_t(1) << 31, "butterfly: events of ", found.dim, " entries; on a device at most 2^31 - 1");
  TORCH_CHECK(weight.sizes() == IntArrayRef({2, 2, found.matrices}), "butterfly: a weight of shape ", weight.sizes(),
              " for a plan of ", found.matrices, " matrices; expected (2, 2, ", found.matrices, ")");
  TORCH_CHECK(layout.empty() || (layout.size() == 3 && c10::multiply_integers(layout) == found.dim),
              "butterfly: layout ", layout, " is not [J, S, n] with a product of ", found.dim);
  if (!layout.empty()) problem.layout = {layout[0], layout[1], layout[2]};
  problem.weights = {weight.const_data_ptr<T>(), found.matrices, inverse};
  if (inverse) reverse(problem.butterfly);
  return problem;
}

// Call body(zero), with zero of the arithmetic's precision.
template <class Body>
auto by_precision(const Tensor& x, const Tensor& weight, const Body& body) {
  const bool same = x.scalar_type() == weight.scalar_type();
  const bool narrow = x.scalar_type() == at::kBFloat16 && weight.scalar_type() == at::kFloat;
  TORCH_CHECK(x.dim() >= 1 && x.device() == weight.device() && (same || narrow) &&
                  (weight.scalar_type() == at::kFloat || weight.scalar_type() == at::kDouble),
              "butterfly: a batch of ", x.scalar_type(), " on ", x.device(), " with a weight of ",
              weight.scalar_type(), " on ", weight.device(),
              "; both must be float32, or both float64, or the batch bfloat16 and the weight float32, on one device");
  return weight.scalar_type() == at::kFloat ? body(0.0F) : body(0.0);
}

Two forward_cuda(const Tensor& events, const Tensor& matrices, IntArrayRef plan, IntArrayRef layout, bool shared) {
  const Tensor x = events.contiguous(), weight = matrices.contiguous();
  return by_precision(x, weight, [&](auto zero) -> Two {
    using T = decltype(zero);
    TorchDevice device(x);
    const auto problem = problem_of<T>(x, weight, plan, layout, shared, false);
    Tensor y = like(x), log_det = at::empty({}, weight.options());
    apply_butterfly(device, problem, events_of(x), events_of(y), log_det.mutable_data_ptr<T>());
    return {y, log_det};
  });
}

Tensor inverse_cuda(const Tensor& events, const Tensor& matrices, IntArrayRef plan, IntArrayRef layout, bool shared) {
  const Tensor y = events.contiguous(), weight = matrices.contiguous();
  TORCH_CHECK(y.scalar_type() != at::kBFloat16, "butterfly: no inverse in bfloat16; use float32 or float64");
  return by_precision(y, weight, [&](auto zero) {
    using T = decltype(zero);
    TorchDevice device(y);
    Tensor x = like(y);
    apply_butterfly(device, problem_of<T>(y, weight, plan, layout, shared, true), events_of(y), events_of(x),
                    static_cast<T*>(nullptr));
    return x;
  });
}

Two backward_of(const OptionalTensor& grad_y, const OptionalTensor& grad_log_det, const Tensor& events,
                const Tensor& matrices, IntArrayRef plan, IntArrayRef layout, bool shared, bool inverse) {
  const Tensor x = events.contiguous(), weight = matrices.contiguous();
  return by_precision(x, weight, [&](auto zero) -> Two {
    using T = decltype(zero);
    TorchDevice device(x);
    const Tensor dy = grad_y ? grad_y->to(x.scalar_type()).contiguous() : Tensor();
    const Tensor of_log_det = grad_log_det ? grad_log_det->to(weight.scalar_type()).contiguous() : Tensor();
    Tensor dx = grad_y ? like(x) : at::zeros_like(x), gradient = like(weight);
    const Events none{nullptr, false};
    backward_butterfly(device, problem_of<T>(x, weight, plan, layout, shared, inverse), events_of(x),
                       grad_y ? events_of(dy) : none, events_of(dx),
                       grad_log_det ? of_log_det.const_data_ptr<T>() : nullptr, gradient.mutable_data_ptr<T>());
    return {dx, gradient};
  });
}

Two backward_cuda(const OptionalTensor& dy, const OptionalTensor& dlog_det, const Tensor& x, const Tensor& weight,
                  IntArrayRef plan, IntArrayRef layout, bool shared) {
  return backward_of(dy, dlog_det, x, weight, plan, layout, shared, false);
}

Two inverse_backward_cuda(const Tensor& dx, const Tensor& y, const Tensor& weight, IntArrayRef plan, IntArrayRef layout,
                          bool shared) {
  return backward_of(dx, std::nullopt, y, weight, plan, layout, shared, true);
}

}  // namespace

TORCH_LIBRARY_IMPL(invertbench, CUDA, m) {
  m.impl("butterfly", forward_cuda);
  m.impl("butterfly_inverse", inverse_cuda);
  m.impl("butterfly_backward", backward_cuda);
  m.impl("butterfly_inverse_backward", inverse_backward_cuda);
}

}  // namespace invertbench
