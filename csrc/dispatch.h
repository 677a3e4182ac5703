// Calls of operators through torch's dispatcher, which profilers and modes watch.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace invertbench {

// Look up an operator by its name, for any device of its tensors.
template <class Signature>
auto operator_named(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace invertbench
