// `invertbench::emerging_inverse` for CUDA tensors, declared in emerging/operators.cpp. Launched on the current stream,
// without waiting for it.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "emerging/cuda/kernels.h"
#include "emerging/operands.h"

namespace invertbench {
namespace {

void check(const char* error) { TORCH_CHECK(error == nullptr, "emerging_inverse: the CUDA runtime says: ", error); }

template <class T>
void run(const at::Tensor& y, const at::Tensor& first, const at::Tensor& second, const at::Tensor& bias, at::Tensor& x) {
  const c10::cuda::CUDAGuard guard(y.device());
  const auto device = y.device().index();
  EmergingFacts facts;
  check(emerging_facts(device, facts));
  EmergingCall<T> call;
  const bool image = y.dim() == 4;
  TORCH_CHECK(y.numel() / y.size(0) < int64_t(1) << 31, "emerging_inverse: events of ", y.numel() / y.size(0),
              " entries; on a device at most 2^31 - 1");
  call.events = y.size(0);
  call.channels = int(y.size(1));
  call.height = image ? int(y.size(2)) : 1;
  call.width = int(y.size(-1));
  call.kernel_rows = image ? int(first.size(2)) : 1;
  call.kernel_columns = int(first.size(-1));
  call.input = y.const_data_ptr<T>();
  call.bias = bias.defined() ? bias.const_data_ptr<T>() : nullptr;
  call.first = first.const_data_ptr<T>();
  call.second = second.const_data_ptr<T>();
  call.output = x.mutable_data_ptr<T>();
  plan_emerging(call, facts.shared_bytes);
  const int64_t numbers = int64_t(call.taps) * call.channels * call.channels;
  TORCH_CHECK(numbers < int64_t(1) << 31, "emerging_inverse: kernels of ", numbers,
              " entries that are kept; on a device at most 2^31 - 1");
  // Beyond two blocks for each processor, a block takes one event after the other.
  const int64_t blocks = std::min<int64_t>(call.events, 2 * facts.processors);
  const at::Tensor packed = at::empty({2, call.taps, call.channels, call.channels}, y.options());
  const int64_t scratch = call.images_shared ? 0 : blocks * call.channels * call.height * call.width;
  const at::Tensor workspace = at::empty({scratch}, y.options());
  call.packed = packed.mutable_data_ptr<T>();
  call.workspace = workspace.mutable_data_ptr<T>();
  check(start_emerging(call, facts, blocks, c10::cuda::getCurrentCUDAStream(device).stream()));
}

at::Tensor emerging_inverse(const at::Tensor& y, const at::Tensor& weight1, const at::Tensor& weight2,
                            const std::optional<at::Tensor>& bias) {
  check_emerging_operands("emerging_inverse", y, weight1, weight2, bias);
  const at::Tensor input = y.contiguous(), first = weight1.contiguous(), second = weight2.contiguous();
  const at::Tensor offset = bias.has_value() ? bias->contiguous() : at::Tensor();
  at::Tensor output = at::empty(y.sizes(), y.options().memory_format(at::MemoryFormat::Contiguous));
  if (output.numel() == 0) return output;
  const auto chosen = y.scalar_type() == at::kFloat ? run<float> : run<double>;
  chosen(input, first, second, offset, output);
  return output;
}

}  // namespace

TORCH_LIBRARY_IMPL(invertbench, CUDA, m) { m.impl("emerging_inverse", TORCH_FN(emerging_inverse)); }

}  // namespace invertbench
