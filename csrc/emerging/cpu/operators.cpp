// An Emerging convolution and its inverse on the processor: `invertbench::emerging` and
// `invertbench::emerging_inverse`, declared in emerging/operators.cpp.

#include <ATen/ops/zeros.h>

#include <optional>

#include "convolution/correlate.h"
#include "emerging/cpu/kernels.h"
#include "emerging/operands.h"
#include "operands.h"

namespace invertbench::emerging {
namespace {

// Call run(problem) with the problem of these tensors, in their precision. `between` has no entries if not wanted.
template <typename Run>
void with_problem(const at::Tensor& events, const at::Tensor& weight1, const at::Tensor& weight2,
                  const std::optional<at::Tensor>& bias, const at::Tensor& output, const at::Tensor& between,
                  const Run& run) {
  const at::Tensor input = events.contiguous(), first = weight1.contiguous(), second = weight2.contiguous();
  const at::Tensor offset = bias.has_value() ? bias->contiguous() : at::Tensor();
  const bool image = input.dim() == 4;
  const Sizes sizes{input.size(0),  input.size(1), image ? input.size(2) : 1,
                    input.size(-1), image ? first.size(2) : 1, first.size(-1)};
  const auto call = [&](auto zero) {
    using T = decltype(zero);
    run(Problem<T>{sizes, input.const_data_ptr<T>(), first.const_data_ptr<T>(), second.const_data_ptr<T>(),
                   offset.defined() ? offset.const_data_ptr<T>() : nullptr, output.data_ptr<T>(),
                   between.numel() > 0 ? between.data_ptr<T>() : nullptr});
  };
  input.scalar_type() == at::kFloat ? call(0.0F) : call(0.0);
}

at::Tensor emerging_inverse(const at::Tensor& y, const at::Tensor& weight1, const at::Tensor& weight2,
                            const std::optional<at::Tensor>& bias) {
  check_emerging_operands("emerging_inverse", y, weight1, weight2, bias);
  const auto options = y.options().memory_format(at::MemoryFormat::Contiguous);
  const at::Tensor output = at::empty(y.sizes(), options);
  with_problem(y, weight1, weight2, bias, output, at::empty({0}, options), [&](const auto& problem) {
    if (output.numel() > 0) invert(problem);
  });
  return output;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> emerging(const at::Tensor& x, const at::Tensor& weight1,
                                                        const at::Tensor& weight2,
                                                        const std::optional<at::Tensor>& bias, bool keep) {
  check_emerging_operands("emerging", x, weight1, weight2, bias);
  const auto options = x.options().memory_format(at::MemoryFormat::Contiguous);
  const at::Tensor output = at::empty(x.sizes(), options), log_det = at::empty({}, x.options());
  const at::Tensor between = keep ? at::empty(x.sizes(), options) : at::empty({0}, x.options());
  with_problem(x, weight1, weight2, bias, output, between, [&](const auto& problem) {
    log_det.fill_(log_det_of(problem));
    if (output.numel() > 0) apply(problem);
  });
  return {output, log_det, between};
}

// The gradient of one kernel, with that of the log-det if it is given.
at::Tensor emerging_weight(const at::Tensor& x, const at::Tensor& of_y, const at::Tensor& weight,
                           const std::optional<at::Tensor>& of_log_det, bool turned) {
  check_emerging_operands("emerging_weight", x, weight, weight, std::nullopt);
  std::vector<int64_t> sizes, before;
  for (int64_t axis = 2; axis < weight.dim(); ++axis) {
    sizes.push_back(std::min(weight.size(axis) / 2 + 1, x.size(axis)));
    before.push_back(turned ? sizes.back() - 1 : 0);
  }
  const Frame frame = correlation::frame_of(x, sizes, before, false);
  const at::Tensor found = correlation::correlate(x, of_y, frame), kernel = weight.contiguous();
  at::Tensor gradient = at::zeros(weight.sizes(), x.options().memory_format(at::MemoryFormat::Contiguous));
  const int64_t channels = x.size(1), columns = weight.size(-1), taps = kernel[0][0].numel();
  const auto fill = [&](auto zero) {
    using T = decltype(zero);
    const T *from = found.const_data_ptr<T>(), *const own = kernel.const_data_ptr<T>();
    const T scale = of_log_det ? of_log_det->item<T>() * T(frame.height * frame.width) : T(0);
    for (int64_t output = 0; output < channels; ++output) {
      for (int64_t input = 0; input < channels; ++input, from += frame.rows * frame.columns) {
        T* const centre = gradient.data_ptr<T>() + (output * channels + input) * taps + taps / 2;
        T* const first = centre - frame.above * columns - frame.left;
        for (int64_t a = 0; a < frame.rows; ++a) {
          std::copy_n(from + a * frame.columns, frame.columns, first + a * columns);
        }
        if (turned ? input < output : input > output) *centre = T(0);
        if (input == output && of_log_det) *centre += scale / own[centre - gradient.data_ptr<T>()];
      }
    }
  };
  x.scalar_type() == at::kFloat ? fill(0.0F) : fill(0.0);
  return gradient;
}

TORCH_LIBRARY_IMPL(invertbench, CPU, m) {
  m.impl("emerging", TORCH_FN(emerging));
  m.impl("emerging_weight", TORCH_FN(emerging_weight));
  m.impl("emerging_inverse", TORCH_FN(emerging_inverse));
}

}  // namespace
}  // namespace invertbench::emerging
