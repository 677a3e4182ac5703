// The derivatives of `invertbench::recurrence`: with the gradient g of y, those of the states, and that of x, follow the
// recurrence of the transposed system in the other direction of time; that of the system is the sum over events and
// positions of (gradient of h_t, g_t) (h_{t-1}, x_t)^T. All are differentiable: a gradient of the states, which second
// derivatives have, is a further input of that recurrence.

#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/eye.h>

#include "autograd.h"
#include "recurrence/recurrence.h"

namespace invertbench::recurrence {
namespace {

std::tuple<at::Tensor, at::Tensor> call(const at::Tensor& x, const at::Tensor& system, int64_t states, bool backwards) {
  return INVERTBENCH_OPERATOR("recurrence", decltype(recurrence)).call(x, system, states, backwards);
}

struct Recurrence : torch::autograd::Function<Recurrence> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& system, int64_t states,
                               bool backwards) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [y, before] = call(x, system, states, backwards);
    context->save_for_backward({x, system, before});
    context->saved_data["states"] = states;
    context->saved_data["backwards"] = backwards;
    context->set_materialize_grads(false);
    return {y, before};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &system = saved[1], &before = saved[2];
    const int64_t states = before.size(1), outputs = system.size(0) - states;
    at::Tensor of_y = gradients[0], transposed = system.t();
    if (!of_y.defined()) of_y = x.new_zeros({x.size(0), outputs, x.size(2)});
    at::Tensor inputs = of_y;
    if (gradients[1].defined()) {
      inputs = at::cat({of_y, gradients[1]}, 1);
      transposed = at::cat({transposed, at::eye(transposed.size(0), states, x.options())}, 1);
    }
    const auto [of_x, of_states] = call(inputs, transposed, states, !context->saved_data["backwards"].toBool());
    at::Tensor of_system;
    if (context->needs_input_grad(1)) {
      of_system = at::bmm(at::cat({of_states, of_y}, 1), at::cat({before, x}, 1).mT()).sum(0);
    }
    return {of_x, of_system, {}, {}};
  }
};

std::tuple<at::Tensor, at::Tensor> with_gradient(const at::Tensor& x, const at::Tensor& system, int64_t states,
                                                 bool backwards) {
  const variable_list results = Recurrence::apply(x, system, states, backwards);
  return {results[0], results[1]};
}

}  // namespace

TORCH_LIBRARY_IMPL(invertbench, AutogradCPU, m) { m.impl("recurrence", TORCH_FN(with_gradient)); }

}  // namespace invertbench::recurrence
