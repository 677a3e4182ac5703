// `invertbench::emerging`: y = conv_w2(conv_w1(x)) + bias, the log-det of one event and, if `keep` is true,
// between = conv_w1(x), else an empty tensor. `invertbench::emerging_inverse`: x from y. Both kernels are masked as in
// layers/emerging.py. Masked entries are not read, and their gradients are zero.
//
// Backward: the transpose of a masked convolution has the transposed kernel, turned about, and the mask of the other
// one; so with the gradient g of y, that of x is W1^T W2^T g, an Emerging convolution again, with w1 and w2 in each
// other's place. The gradients of the kernels are correlations of x and `between` with W2^T g and g. For the inverse,
// x = W1^-1 W2^-1 (y - bias), and with the gradient g of x, that of y is W2^-T W1^-T g. The gradients of the kernels are
// correlations of both stages, x and W1 x, with minus the gradients of their right-hand sides, W2^T (gradient of y)
// and the gradient of y. All of these are differentiable operators: so is backward.
//
// `invertbench::emerging_weight`, on a processor: the gradient of one kernel, that of the log-det included, in one call,
// where it need not be differentiable.

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/diag_embed.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>

#include "autograd.h"
#include "emerging/operands.h"

namespace invertbench::emerging {
namespace {

using torch::autograd::Variable;

at::Tensor call(const at::Tensor& y, const at::Tensor& weight1, const at::Tensor& weight2,
                const std::optional<at::Tensor>& bias) {
  return INVERTBENCH_OPERATOR("emerging_inverse", decltype(call)).call(y, weight1, weight2, bias);
}

std::vector<int64_t> all_axes(const at::Tensor& tensor, int64_t from) {
  std::vector<int64_t> axes;
  for (int64_t axis = from; axis < tensor.dim(); ++axis) axes.push_back(axis);
  return axes;
}

// True where the mask of w1 is zero.
at::Tensor hidden_from_first(const at::Tensor& weight) {
  at::Tensor hidden = at::ones_like(weight, weight.options().dtype(at::kBool));
  at::Tensor kept = hidden, centre = hidden;
  for (int64_t axis = 2; axis < weight.dim(); ++axis) {
    kept = kept.slice(axis, weight.size(axis) / 2);
    centre = centre.slice(axis, weight.size(axis) / 2, weight.size(axis) / 2 + 1);
  }
  kept.zero_();
  centre = centre.flatten(1);  // a view, as the other axes have length 1
  centre.copy_(at::ones_like(centre).triu(1));
  return hidden;
}

at::Tensor transposed_kernel(const at::Tensor& weight) { return weight.transpose(0, 1).flip(all_axes(weight, 2)); }

std::vector<int64_t> same_padding(const at::Tensor& weight) {
  std::vector<int64_t> padding;
  for (int64_t axis = 2; axis < weight.dim(); ++axis) padding.push_back(weight.size(axis) / 2);
  return padding;
}

at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight) {
  const std::vector<int64_t> ones(weight.dim() - 2, 1), zeros(weight.dim() - 2, 0);
  return at::convolution(x, weight, std::nullopt, ones, same_padding(weight), ones, false, zeros, 1);
}

at::Tensor kernel_gradient(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& weight) {
  const std::vector<int64_t> ones(weight.dim() - 2, 1), zeros(weight.dim() - 2, 0);
  return std::get<1>(at::convolution_backward(gradient, x, weight, std::nullopt, ones, same_padding(weight), ones,
                                              false, zeros, 1, {false, true, false}));
}

struct EmergingInverse : torch::autograd::Function<EmergingInverse> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& y, const at::Tensor& weight1,
                            const at::Tensor& weight2, const std::optional<at::Tensor>& bias) {
    const at::AutoDispatchBelowADInplaceOrView below;
    at::Tensor x = call(y, weight1, weight2, bias);
    context->save_for_backward({x, weight1, weight2});
    context->saved_data["has_bias"] = bias.has_value();
    return x;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Variable &x = saved[0], &weight1 = saved[1], &weight2 = saved[2];
    const at::Tensor of_y =
        call(gradients[0], transposed_kernel(weight2), transposed_kernel(weight1), std::nullopt);
    at::Tensor of_weight1, of_weight2, of_bias;
    const at::Tensor hidden1 = hidden_from_first(weight1), hidden2 = hidden1.flip(all_axes(hidden1, 0));
    if (context->needs_input_grad(1)) {
      const at::Tensor between = convolve(of_y, transposed_kernel(weight2.masked_fill(hidden2, 0)));
      of_weight1 = kernel_gradient(x, between, weight1).neg().masked_fill(hidden1, 0);
    }
    if (context->needs_input_grad(2)) {
      const at::Tensor between = convolve(x, weight1.masked_fill(hidden1, 0));
      of_weight2 = kernel_gradient(between, of_y, weight2).neg().masked_fill(hidden2, 0);
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(3)) {
      std::vector<int64_t> axes = all_axes(of_y, 2);
      axes.push_back(0);
      of_bias = of_y.sum(axes).neg();
    }
    return {of_y, of_weight1, of_weight2, of_bias};
  }
};

at::Tensor with_gradient(const at::Tensor& y, const at::Tensor& weight1, const at::Tensor& weight2,
                         const std::optional<at::Tensor>& bias) {
  const bool wanted = y.requires_grad() || weight1.requires_grad() || weight2.requires_grad() ||
                      (bias.has_value() && bias->requires_grad());
  if (wanted && at::GradMode::is_enabled()) return EmergingInverse::apply(y, weight1, weight2, bias);
  const at::AutoDispatchBelowADInplaceOrView below;
  return call(y, weight1, weight2, bias);
}

at::Tensor shape_only(const at::Tensor& y, const at::Tensor& weight1, const at::Tensor& weight2,
                      const std::optional<at::Tensor>& bias) {
  check_emerging_operands("emerging_inverse", y, weight1, weight2, bias);
  return at::empty_symint(y.sym_sizes(), y.options().memory_format(at::MemoryFormat::Contiguous));
}

using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

Results call_forward(const at::Tensor& x, const at::Tensor& weight1, const at::Tensor& weight2,
                     const std::optional<at::Tensor>& bias, bool keep) {
  return INVERTBENCH_OPERATOR("emerging", decltype(call_forward)).call(x, weight1, weight2, bias, keep);
}

// The size along an axis that is fixed for a layer even where a compiler traces it for any batch.
int64_t fixed_size(const at::Tensor& tensor, int64_t axis) {
  return tensor.sym_size(axis).guard_int(__FILE__, __LINE__);
}

// The gradient of the taps that a mask keeps and that an event can reach; of the others, zero. `turned` for w2.
at::Tensor kept_gradient(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& weight, bool turned) {
  at::Tensor kept = weight;
  std::vector<int64_t> around_events, around_taps;
  for (int64_t axis = weight.dim() - 1; axis > 1; --axis) {  // padding counts axes from the last
    const int64_t centre = fixed_size(weight, axis) / 2, reach = std::min(centre, fixed_size(x, axis) - 1);
    kept = kept.slice(axis, turned ? centre - reach : centre, turned ? centre + 1 : centre + reach + 1);
    around_events.insert(around_events.end(), {turned ? reach : 0, turned ? 0 : reach});
    around_taps.insert(around_taps.end(), {centre - (turned ? reach : 0), centre - (turned ? 0 : reach)});
  }
  const std::vector<int64_t> ones(weight.dim() - 2, 1), zeros(weight.dim() - 2, 0);
  const at::Tensor found =
      std::get<1>(at::convolution_backward(gradient, at::constant_pad_nd(x, around_events), kept, std::nullopt, ones,
                                           zeros, ones, false, zeros, 1, {false, true, false}));
  return at::constant_pad_nd(found, around_taps);
}

at::Tensor centre_diagonal(const at::Tensor& weight) {
  at::Tensor centre = weight;
  for (int64_t axis = weight.dim() - 1; axis > 1; --axis) centre = centre.select(axis, fixed_size(weight, axis) / 2);
  return centre.diagonal();
}

// The gradient of n times the sum of log|w_cc| at the centre, `scaled` by n.
at::Tensor log_det_gradient(const at::Tensor& weight, const at::Tensor& scaled) {
  at::Tensor gradient = at::diag_embed(scaled / centre_diagonal(weight));
  std::vector<int64_t> around;
  for (int64_t axis = weight.dim() - 1; axis > 1; --axis) {  // padding counts axes from the last
    gradient = gradient.unsqueeze(-1);
    around.insert(around.end(), 2, fixed_size(weight, axis) / 2);
  }
  return at::constant_pad_nd(gradient, around);
}

at::Tensor weight_shape(const at::Tensor& x, const at::Tensor&, const at::Tensor& weight,
                        const std::optional<at::Tensor>&, bool) {
  check_emerging_operands("emerging_weight", x, weight, weight, std::nullopt);
  return at::empty_symint(weight.sym_sizes(), x.options().memory_format(at::MemoryFormat::Contiguous));
}

at::Tensor call_weight(const at::Tensor& x, const at::Tensor& of_y, const at::Tensor& weight,
                       const std::optional<at::Tensor>& of_log_det, bool turned) {
  return INVERTBENCH_OPERATOR("emerging_weight", decltype(call_weight)).call(x, of_y, weight, of_log_det, turned);
}

struct EmergingForward : torch::autograd::Function<EmergingForward> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight1,
                               const at::Tensor& weight2, const std::optional<at::Tensor>& bias) {
    const at::AutoDispatchBelowADInplaceOrView below;
    auto [y, log_det, between] = call_forward(x, weight1, weight2, bias, true);
    context->save_for_backward({x, between, weight1, weight2});
    context->saved_data["has_bias"] = bias.has_value();
    context->set_materialize_grads(false);
    return {y, log_det, between};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Variable &x = saved[0], &between = saved[1], &weight1 = saved[2], &weight2 = saved[3];
    const Variable &of_y = gradients[0], &of_log_det = gradients[1];
    at::Tensor of_x, of_between = gradients[2], of_weight1, of_weight2, of_bias;
    const bool first = context->needs_input_grad(1), second = context->needs_input_grad(2);
    if (of_between.defined()) {  // in second derivatives alone
      const at::Tensor hidden1 = hidden_from_first(weight1), hidden2 = hidden1.flip(all_axes(hidden1, 0));
      if (of_y.defined()) {
        of_between = of_between + convolve(of_y, transposed_kernel(weight2.masked_fill(hidden2, 0)));
      }
      of_x = convolve(of_between, transposed_kernel(weight1.masked_fill(hidden1, 0)));
    } else if (of_y.defined()) {
      std::tie(of_x, std::ignore, of_between) =
          call_forward(of_y, transposed_kernel(weight2), transposed_kernel(weight1), std::nullopt, first);
    }
    const bool together = !at::GradMode::is_enabled() && x.is_cpu() && of_y.defined();
    const auto given = of_log_det.defined() ? std::optional(of_log_det) : std::nullopt;
    if (together) {
      if (first) of_weight1 = call_weight(x, of_between, weight1, given, false);
      if (second) of_weight2 = call_weight(between, of_y, weight2, given, true);
    } else if ((first && of_between.defined()) || (second && of_y.defined())) {
      const at::Tensor hidden1 = hidden_from_first(weight1);
      if (first && of_between.defined()) {
        of_weight1 = kept_gradient(x, of_between, weight1, false).masked_fill(hidden1, 0);
      }
      if (second && of_y.defined()) {
        of_weight2 = kept_gradient(between, of_y, weight2, true).masked_fill(hidden1.flip(all_axes(hidden1, 0)), 0);
      }
    }
    if (of_log_det.defined() && !together) {
      int64_t positions = 1;
      for (int64_t axis = 2; axis < x.dim(); ++axis) positions *= fixed_size(x, axis);
      const at::Tensor scaled = of_log_det * positions;
      const auto add = [&](at::Tensor& sum, const at::Tensor& weight) {
        const at::Tensor part = log_det_gradient(weight, scaled);
        sum = sum.defined() ? sum + part : part;
      };
      if (first) add(of_weight1, weight1);
      if (second) add(of_weight2, weight2);
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(3) && of_y.defined()) {
      std::vector<int64_t> axes = all_axes(of_y, 2);
      axes.push_back(0);
      of_bias = of_y.sum(axes);
    }
    return {of_x, of_weight1, of_weight2, of_bias};
  }
};

Results forward_with_gradient(const at::Tensor& x, const at::Tensor& weight1, const at::Tensor& weight2,
                              const std::optional<at::Tensor>& bias, bool keep) {
  const bool wanted = x.requires_grad() || weight1.requires_grad() || weight2.requires_grad() ||
                      (bias.has_value() && bias->requires_grad());
  if (wanted && at::GradMode::is_enabled()) {
    const variable_list results = EmergingForward::apply(x, weight1, weight2, bias);
    return {results[0], results[1], results[2]};
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  return call_forward(x, weight1, weight2, bias, keep);
}

Results forward_shapes(const at::Tensor& x, const at::Tensor& weight1, const at::Tensor& weight2,
                       const std::optional<at::Tensor>& bias, bool keep) {
  check_emerging_operands("emerging", x, weight1, weight2, bias);
  const auto like_x = [&] {
    return at::empty_symint(x.sym_sizes(), x.options().memory_format(at::MemoryFormat::Contiguous));
  };
  return {like_x(), at::empty({}, x.options()), keep ? like_x() : at::empty({0}, x.options())};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(invertbench, m) {
  m.def("emerging(Tensor x, Tensor weight1, Tensor weight2, Tensor? bias, bool keep) -> (Tensor, Tensor, Tensor)");
  m.def("emerging_inverse(Tensor y, Tensor weight1, Tensor weight2, Tensor? bias) -> Tensor");
  m.def("emerging_weight(Tensor x, Tensor of_y, Tensor weight, Tensor? of_log_det, bool turned) -> Tensor");
}
TORCH_LIBRARY_IMPL(invertbench, Autograd, m) {
  m.impl("emerging", TORCH_FN(forward_with_gradient));
  m.impl("emerging_inverse", TORCH_FN(with_gradient));
}
TORCH_LIBRARY_IMPL(invertbench, Meta, m) {
  m.impl("emerging", TORCH_FN(forward_shapes));
  m.impl("emerging_inverse", TORCH_FN(shape_only));
  m.impl("emerging_weight", TORCH_FN(weight_shape));
}

}  // namespace invertbench::emerging
