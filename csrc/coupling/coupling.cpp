// `invertbench::coupling`: a flow's affine coupling by a compiled network, one operation in either direction, on a
// processor. The network's operators, the gate, scale and shift are those of convolutions.cpp, perceptron.cpp and
// affine/scales.cpp; the gradients of the kept channels are added up in place.
//
// `plain_coupling` is the same by PyTorch's operators, defined in flows/coupled.py, for derivatives of the gradients.

#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "autograd.h"

namespace invertbench::coupling {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;

// What a network returns for the kept channels, and what its gradient needs besides.
struct Outputs {
  at::Tensor s, shift;
  std::vector<at::Tensor> hidden;
};

struct Convolutions {
  static constexpr size_t weights = 9;

  static Outputs forward(const at::Tensor& kept, at::TensorList weights, bool keep) {
    const auto& op = INVERTBENCH_OPERATOR("convolutions", Pair(const at::Tensor&, at::TensorList, bool));
    const auto [y, hidden] = op.call(kept, weights, keep);
    const int64_t moved = y.size(1) / 2;
    return {y.narrow(1, moved, moved), y.narrow(1, 0, moved), {hidden}};
  }

  static std::vector<at::Tensor> backward(const at::Tensor& of_kept, const at::Tensor& of_s, const at::Tensor& of_shift,
                                          const at::Tensor& kept, at::TensorList weights, at::TensorList hidden) {
    using Signature = std::vector<at::Tensor>(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                              const at::Tensor&, at::TensorList, const at::Tensor&);
    const auto& op = INVERTBENCH_OPERATOR("convolutions_backward", Signature);
    return op.call(of_kept, of_shift, of_s, kept, weights, hidden[0]);
  }
};

// s by the first, with tanh, and the shift by the second, with ReLU.
struct Perceptrons {
  static constexpr size_t weights = 12;

  static Outputs forward(const at::Tensor& kept, at::TensorList weights, bool keep) {
    const auto& op = INVERTBENCH_OPERATOR("perceptron", Pair(const at::Tensor&, at::TensorList, bool, bool));
    const auto [s, hidden_s] = op.call(kept, weights.slice(0, 6), true, keep);
    const auto [shift, hidden_shift] = op.call(kept, weights.slice(6), false, keep);
    return {s, shift, {hidden_s, hidden_shift}};
  }

  static std::vector<at::Tensor> backward(const at::Tensor& of_kept, const at::Tensor& of_s, const at::Tensor& of_shift,
                                          const at::Tensor& kept, at::TensorList weights, at::TensorList hidden) {
    using Signature = std::vector<at::Tensor>(const at::Tensor&, const at::Tensor&, const at::Tensor&, at::TensorList,
                                              const at::Tensor&, bool);
    const auto& op = INVERTBENCH_OPERATOR("perceptron_backward", Signature);
    std::vector<at::Tensor> found = op.call(of_kept, of_s, kept, weights.slice(0, 6), hidden[0], true);
    const std::vector<at::Tensor> others = op.call(of_kept, of_shift, kept, weights.slice(6), hidden[1], false);
    found.insert(found.end(), others.begin(), others.end());
    return found;
  }
};

// Call with(network) with the network of this name, which must have as many weights as these.
template <class With>
auto with_network(std::string_view name, at::TensorList weights, const With& with) {
  const auto checked = [&](auto network) {
    TORCH_CHECK_VALUE(weights.size() == network.weights, "coupling: ", weights.size(), " weights; ", name, " have ",
                      network.weights);
    return with(network);
  };
  if (name == "convolutions") return checked(Convolutions{});
  TORCH_CHECK_VALUE(name == "perceptrons", "coupling: network '", name,
                    "' is not known; use convolutions or perceptrons");
  return checked(Perceptrons{});
}

Pair scaled(const at::Tensor& kept, const at::Tensor& moved, const Outputs& by, int64_t gate) {
  using Signature = Pair(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t);
  return INVERTBENCH_OPERATOR("affine_coupling", Signature).call(kept, moved, by.s, by.shift, gate);
}

void check(const at::Tensor& x, int64_t kept) {
  TORCH_CHECK_VALUE(x.dim() > 1 && 0 < kept && kept < x.size(1), "coupling: ", kept,
                    " kept channels; x of shape ", x.sizes(), " needs at least one, and one that is moved");
}

// (N, channels, *spatial) -> the same, and the sums of the log-scales, (N,).
Pair coupling(const at::Tensor& x, at::TensorList weights, int64_t kept, int64_t gate, std::string_view network) {
  check(x, kept);
  const at::Tensor unchanged = x.narrow(1, 0, kept), moved = x.narrow(1, kept, x.size(1) - kept);
  return with_network(network, weights, [&](auto net) {
    return scaled(unchanged, moved, net.forward(unchanged, weights, false), gate);
  });
}

struct Coupling : torch::autograd::Function<Coupling> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, at::TensorList weights, int64_t kept,
                               int64_t gate, std::string_view network) {
    const at::AutoDispatchBelowADInplaceOrView below;
    check(x, kept);
    const at::Tensor unchanged = x.narrow(1, 0, kept), moved = x.narrow(1, kept, x.size(1) - kept);
    const Outputs by = with_network(network, weights, [&](auto net) { return net.forward(unchanged, weights, true); });
    const auto [y, log_det] = scaled(unchanged, moved, by, gate);
    variable_list saved{x};
    saved.insert(saved.end(), weights.begin(), weights.end());
    saved.push_back(by.s);
    saved.insert(saved.end(), by.hidden.begin(), by.hidden.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["kept"] = kept;
    context->saved_data["gate"] = gate;
    context->saved_data["weights"] = int64_t(weights.size());
    context->saved_data["network"] = std::string(network);
    return {y, log_det};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const int64_t kept = context->saved_data["kept"].toInt(), gate = context->saved_data["gate"].toInt();
    const std::string network = context->saved_data["network"].toStringRef();
    const auto count = size_t(context->saved_data["weights"].toInt());
    const at::Tensor& x = saved[0];
    const at::TensorList weights(saved.data() + 1, count), hidden(saved.data() + count + 2, saved.size() - count - 2);
    variable_list found = at::GradMode::is_enabled()
                              ? differentiable(context, gradients, {saved.data(), count + 1}, kept, gate, network)
                              : compiled(gradients, x, weights, saved[count + 1], hidden, kept, gate, network);
    found.resize(found.size() + 3);  // of the other arguments
    return found;
  }

 private:
  static variable_list compiled(const variable_list& gradients, const at::Tensor& x, at::TensorList weights,
                                const at::Tensor& s, at::TensorList hidden, int64_t kept, int64_t gate,
                                std::string_view network) {
    using Signature = Pair(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t);
    const at::AutoDispatchBelowADInplaceOrView below;
    const int64_t count = x.size(1) - kept;
    const auto& op = INVERTBENCH_OPERATOR("affine_coupling_backward", Signature);
    const auto [of_x, of_s] = op.call(gradients[0], gradients[1], x.narrow(1, kept, count), s, gate);
    const at::Tensor of_kept = of_x.narrow(1, 0, kept), of_shift = gradients[0].narrow(1, kept, count);
    const at::Tensor unchanged = x.narrow(1, 0, kept), of_gate = of_s;
    variable_list found = with_network(network, weights, [&](auto net) {
      return net.backward(of_kept, of_gate, of_shift, unchanged, weights, hidden);
    });
    found.insert(found.begin(), of_x);
    return found;
  }

  // The gradients in a graph of their own.
  static variable_list differentiable(AutogradContext* context, const variable_list& gradients, at::TensorList operands,
                                      int64_t kept, int64_t gate, std::string_view network) {
    static const auto plain = operator_named<decltype(coupling)>("invertbench::plain_coupling");
    variable_list inputs, wanted;
    for (size_t i = 0; i < operands.size(); ++i) {
      // A view, because saved tensors may depend on one another in the caller's graph.
      inputs.push_back(operands[i].view_as(operands[i]));
      if (context->needs_input_grad(i)) wanted.push_back(inputs.back());
    }
    const auto [y, log_det] = plain.call(inputs[0], {inputs.data() + 1, inputs.size() - 1}, kept, gate, network);
    const variable_list made = torch::autograd::grad({y, log_det}, wanted, gradients, true, true);
    variable_list found(operands.size());
    for (size_t i = 0, next = 0; i < operands.size(); ++i) {
      if (context->needs_input_grad(i)) found[i] = made[next++];
    }
    return found;
  }
};

Pair with_gradient(const at::Tensor& x, at::TensorList weights, int64_t kept, int64_t gate, std::string_view network) {
  const auto trained = [](const at::Tensor& one) { return one.requires_grad(); };
  if (at::GradMode::is_enabled() && (trained(x) || std::any_of(weights.begin(), weights.end(), trained))) {
    const variable_list results = Coupling::apply(x, weights, kept, gate, network);
    return {results[0], results[1]};
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  return coupling(x, weights, kept, gate, network);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(invertbench, m) {
  m.def("coupling(Tensor x, Tensor[] weights, int kept, int gate, str network) -> (Tensor, Tensor)");
  m.def("plain_coupling(Tensor x, Tensor[] weights, int kept, int gate, str network) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(invertbench, CPU, m) { m.impl("coupling", TORCH_FN(coupling)); }
TORCH_LIBRARY_IMPL(invertbench, AutogradCPU, m) { m.impl("coupling", TORCH_FN(with_gradient)); }

}  // namespace invertbench::coupling
