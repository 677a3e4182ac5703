// torch.ops.invertbench.butterfly and related operators: schemas, gradients and shapes without data. The work is in
// butterfly/cpu/operators.cpp.
//
// plan: for each part its size, the number of its levels, the levels, first applied first. layout: empty for an event
// in its own order, else [J, S, n] (see Layout). shared: one matrix for all pairs of a block.

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "autograd.h"

namespace invertbench::butterfly {
namespace {

using at::IntArrayRef;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Two = std::tuple<Tensor, Tensor>;

using ForwardSignature = Two(const Tensor&, const Tensor&, IntArrayRef, IntArrayRef, bool);
using InverseSignature = Tensor(const Tensor&, const Tensor&, IntArrayRef, IntArrayRef, bool);
using BackwardSignature = Two(const OptionalTensor&, const OptionalTensor&, const Tensor&, const Tensor&, IntArrayRef,
                              IntArrayRef, bool);
using InverseBackwardSignature = Two(const Tensor&, const Tensor&, const Tensor&, IntArrayRef, IntArrayRef, bool);

Tensor like(const Tensor& x) { return at::empty_like(x, at::MemoryFormat::Contiguous); }

Two forward_meta(const Tensor& x, const Tensor& weight, IntArrayRef, IntArrayRef, bool) {
  return {like(x), at::empty({}, weight.options())};
}

Tensor inverse_meta(const Tensor& y, const Tensor&, IntArrayRef, IntArrayRef, bool) { return like(y); }

Two backward_meta(const OptionalTensor&, const OptionalTensor&, const Tensor& x, const Tensor& weight, IntArrayRef,
                  IntArrayRef, bool) {
  return {like(x), like(weight)};
}

Two inverse_backward_meta(const Tensor&, const Tensor& y, const Tensor& weight, IntArrayRef, IntArrayRef, bool) {
  return {like(y), like(weight)};
}

const auto& forward_op() { return INVERTBENCH_OPERATOR("butterfly", ForwardSignature); }
const auto& inverse_op() { return INVERTBENCH_OPERATOR("butterfly_inverse", InverseSignature); }
const auto& backward_op() { return INVERTBENCH_OPERATOR("butterfly_backward", BackwardSignature); }
const auto& inverse_backward_op() {
  return INVERTBENCH_OPERATOR("butterfly_inverse_backward", InverseBackwardSignature);
}

void save(AutogradContext* ctx, const Tensor& x, const Tensor& weight, IntArrayRef plan, IntArrayRef layout,
          bool shared) {
  ctx->save_for_backward({x, weight});
  ctx->saved_data["plan"] = plan.vec();
  ctx->saved_data["layout"] = layout.vec();
  ctx->saved_data["shared"] = shared;
  ctx->set_materialize_grads(false);
}

struct Forward : torch::autograd::Function<Forward> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight, IntArrayRef plan,
                               IntArrayRef layout, bool shared) {
    at::AutoDispatchBelowADInplaceOrView below;
    save(ctx, x, weight, plan, layout, shared);
    auto [y, log_det] = forward_op().call(x, weight, plan, layout, shared);
    return {y, log_det};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto given = [](const Tensor& grad) { return grad.defined() ? OptionalTensor(grad) : std::nullopt; };
    auto [dx, dweight] = backward_op().call(given(grads[0]), given(grads[1]), saved[0], saved[1],
                                            ctx->saved_data["plan"].toIntVector(),
                                            ctx->saved_data["layout"].toIntVector(), ctx->saved_data["shared"].toBool());
    return {dx, dweight, Tensor(), Tensor(), Tensor()};
  }
};

struct Inverse : torch::autograd::Function<Inverse> {
  static Tensor forward(AutogradContext* ctx, const Tensor& y, const Tensor& weight, IntArrayRef plan,
                        IntArrayRef layout, bool shared) {
    at::AutoDispatchBelowADInplaceOrView below;
    save(ctx, y, weight, plan, layout, shared);
    return inverse_op().call(y, weight, plan, layout, shared);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    if (!grads[0].defined()) return variable_list(5);
    const auto saved = ctx->get_saved_variables();
    auto [dy, dweight] = inverse_backward_op().call(
        grads[0], saved[0], saved[1], ctx->saved_data["plan"].toIntVector(), ctx->saved_data["layout"].toIntVector(),
        ctx->saved_data["shared"].toBool());
    return {dy, dweight, Tensor(), Tensor(), Tensor()};
  }
};

[[noreturn]] variable_list refuse() {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "butterfly: the compiled kernels give first derivatives only; for derivatives of "
                                     "them set INVERTBENCH_KERNELS=off, which runs the layer as plain PyTorch");
}

struct Backward : torch::autograd::Function<Backward> {
  static variable_list forward(AutogradContext*, const OptionalTensor& dy, const OptionalTensor& dlog_det,
                               const Tensor& x, const Tensor& weight, IntArrayRef plan, IntArrayRef layout, bool shared) {
    at::AutoDispatchBelowADInplaceOrView below;
    auto [dx, dweight] = backward_op().call(dy, dlog_det, x, weight, plan, layout, shared);
    return {dx, dweight};
  }
  static variable_list backward(AutogradContext*, const variable_list&) { return refuse(); }
};

struct InverseBackward : torch::autograd::Function<InverseBackward> {
  static variable_list forward(AutogradContext*, const Tensor& dx, const Tensor& y, const Tensor& weight,
                               IntArrayRef plan, IntArrayRef layout, bool shared) {
    at::AutoDispatchBelowADInplaceOrView below;
    auto [dy, dweight] = inverse_backward_op().call(dx, y, weight, plan, layout, shared);
    return {dy, dweight};
  }
  static variable_list backward(AutogradContext*, const variable_list&) { return refuse(); }
};

Two forward_autograd(const Tensor& x, const Tensor& weight, IntArrayRef plan, IntArrayRef layout, bool shared) {
  auto out = Forward::apply(x, weight, plan, layout, shared);
  return {out[0], out[1]};
}

Tensor inverse_autograd(const Tensor& y, const Tensor& weight, IntArrayRef plan, IntArrayRef layout, bool shared) {
  return Inverse::apply(y, weight, plan, layout, shared);
}

Two backward_autograd(const OptionalTensor& dy, const OptionalTensor& dlog_det, const Tensor& x, const Tensor& weight,
                      IntArrayRef plan, IntArrayRef layout, bool shared) {
  auto out = Backward::apply(dy, dlog_det, x, weight, plan, layout, shared);
  return {out[0], out[1]};
}

Two inverse_backward_autograd(const Tensor& dx, const Tensor& y, const Tensor& weight, IntArrayRef plan,
                              IntArrayRef layout, bool shared) {
  auto out = InverseBackward::apply(dx, y, weight, plan, layout, shared);
  return {out[0], out[1]};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(invertbench, m) {
  m.def("butterfly(Tensor x, Tensor weight, int[] plan, int[] layout, bool shared) -> (Tensor, Tensor)");
  m.def("butterfly_inverse(Tensor y, Tensor weight, int[] plan, int[] layout, bool shared) -> Tensor");
  m.def(
      "butterfly_backward(Tensor? grad_y, Tensor? grad_log_det, Tensor x, Tensor weight, int[] plan, int[] layout, "
      "bool shared) -> (Tensor, Tensor)");
  m.def(
      "butterfly_inverse_backward(Tensor grad_x, Tensor y, Tensor weight, int[] plan, int[] layout, bool shared) -> "
      "(Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(invertbench, Meta, m) {
  m.impl("butterfly", forward_meta);
  m.impl("butterfly_inverse", inverse_meta);
  m.impl("butterfly_backward", backward_meta);
  m.impl("butterfly_inverse_backward", inverse_backward_meta);
}

TORCH_LIBRARY_IMPL(invertbench, Autograd, m) {
  m.impl("butterfly", forward_autograd);
  m.impl("butterfly_inverse", inverse_autograd);
  m.impl("butterfly_backward", backward_autograd);
  m.impl("butterfly_inverse_backward", inverse_backward_autograd);
}

}  // namespace invertbench::butterfly
