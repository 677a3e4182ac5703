// What the derivatives of operators have in common: torch's names, and calls of operators through torch's dispatcher,
// which profilers and modes watch.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

namespace invertbench {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Look up an operator by its name, for any device of its tensors.
template <class Signature>
auto operator_named(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// The operator `invertbench::name`, looked up once.
#define INVERTBENCH_OPERATOR(name, ...) \
  ([]() -> const auto& {                                                           \
    static const auto op = operator_named<__VA_ARGS__>("invertbench::" name);      \
    return op;                                                                     \
  }())

}  // namespace invertbench
