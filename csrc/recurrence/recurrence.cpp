// `invertbench::recurrence`, on a processor: with (h_t, y_t) = system (h_{t-1}, x_t) for the positions t of sequences
// (N, C, T), from h = 0 on, all y_t, (N, outputs, T), and the state h_{t-1} before each, (N, states, T). `backwards`:
// from the last position to the first. The results of an event depend neither on its batch nor on threads.

#include "recurrence/recurrence.h"

#include "operands.h"

namespace invertbench::recurrence {

#define INVERTBENCH_BODY "recurrence/steps.h"
#include "simd/each.h"

namespace {

constexpr int64_t PRODUCTS_WORTH_A_THREAD = 2000000;

}  // namespace

std::tuple<at::Tensor, at::Tensor> recurrence(const at::Tensor& x, const at::Tensor& system, int64_t states,
                                              bool backwards) {
  TORCH_CHECK_VALUE(x.dim() == 3 && system.dim() == 2 && states >= 0 && system.size(0) >= states &&
                        system.size(1) == states + x.size(1),
                    "recurrence: a system of shape ", system.sizes(), " with ", states,
                    " states does not fit sequences of shape ", x.sizes(),
                    "; expected (states + outputs, states + C) for (N, C, T)");
  const at::Tensor events = rows(x), matrix = system.contiguous();
  const int64_t length = x.size(2), outputs = system.size(0) - states;
  at::Tensor y = at::empty({x.size(0), outputs, length}, x.options());
  at::Tensor before = at::empty({x.size(0), states, length}, x.options());
  in_precision("recurrence", events, {matrix}, [&](auto zero) {
    using T = decltype(zero);
    constexpr int64_t lanes = INVERTBENCH_BEST(LANES<T>);
    const INVERTBENCH_BEST(System<T>) problem{
        states, x.size(1), outputs, length, matrix.const_data_ptr<T>(), backwards};
    const ThreadMemory<T> memory(problem.tile(), at::get_num_threads());
    const Rows<T> from(events);
    T *const to_y = y.data_ptr<T>(), *const to_states = before.data_ptr<T>();
    const int64_t worth = grain(system.numel() * length * lanes, PRODUCTS_WORTH_A_THREAD);
    at::parallel_for(0, (x.size(0) + lanes - 1) / lanes, worth, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin * lanes; n < std::min(end * lanes, x.size(0)); n += lanes) {
        INVERTBENCH_BEST(run_events<T>)(problem, std::min(lanes, x.size(0) - n), from[n], events.stride(0),
                                        memory.own(), to_y + n * outputs * length, to_states + n * states * length);
      }
    });
  });
  return {y, before};
}

TORCH_LIBRARY_FRAGMENT(invertbench, m) {
  m.def("recurrence(Tensor x, Tensor system, int states, bool backwards) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(invertbench, CPU, m) { m.impl("recurrence", TORCH_FN(recurrence)); }

}  // namespace invertbench::recurrence
