// The launches of csrc/emerging/cuda/kernels.cu, run on the processor; called by tests through one plain function.

#include <algorithm>
#include <string>
#include <vector>

#include "emerging/cuda/kernels.h"
#include "host_block.h"

namespace invertbench::emulation {

struct Sizes {
  int64_t events;
  int channels, height, width, kernel_rows, kernel_columns, shared_bytes, blocks;
};

template <class T>
void invert(const Sizes& sizes, const void* y, const void* first, const void* second, const void* bias, void* x,
            int* chosen) {
  EmergingCall<T> call;
  call.events = sizes.events;
  call.channels = sizes.channels;
  call.height = sizes.height;
  call.width = sizes.width;
  call.kernel_rows = sizes.kernel_rows;
  call.kernel_columns = sizes.kernel_columns;
  call.input = static_cast<const T*>(y);
  call.first = static_cast<const T*>(first);
  call.second = static_cast<const T*>(second);
  call.bias = static_cast<const T*>(bias);
  call.output = static_cast<T*>(x);
  plan_emerging(call, sizes.shared_bytes);
  chosen[0] = call.parts;
  chosen[1] = call.images_shared;
  chosen[2] = call.taps_shared;
  const int64_t size = int64_t(call.channels) * call.height * call.width;
  std::vector<T> packed(size_t(2 * call.taps) * size_t(call.channels * call.channels), T(0) / T(0));
  std::vector<T> workspace(size_t(call.images_shared ? 0 : sizes.blocks * size), T(0) / T(0));
  call.packed = packed.data();
  call.workspace = workspace.data();
  Ledger prepared;
  prepared.allow(packed.data(), int64_t(packed.size()));
  for (int kernel = 0; kernel < 2; ++kernel) {
    for (int column = 0; column < call.taps * call.channels; ++column) {
      HostBlock<Nothing> block(EMERGING_PREPARE_THREADS, call.channels * int(sizeof(T)), prepared);
      prepare_column(block, call, kernel == 1, column);
    }
  }
  Ledger inverted;
  inverted.allow(call.output, sizes.events * size);
  for (int number = 0; number < sizes.blocks; ++number) {
    HostBlock<Nothing> block(call.threads, call.bytes, inverted);
    if (call.images_shared) invert_events<T, true>(block, call, number, sizes.blocks);
    else invert_events<T, false>(block, call, number, sizes.blocks);
  }
  const auto once = [](int stores) { return stores == 1; };
  const auto all_once = [&](const Ledger& ledger) {
    return std::all_of(ledger.memories[0].stores.begin(), ledger.memories[0].stores.end(), once);
  };
  if (!all_once(prepared)) fail("a packed tap is not stored once");
  if (call.images_shared && !all_once(inverted)) fail("an entry is not stored once");
}

}  // namespace invertbench::emulation

extern "C" const char* emulate_emerging(int precise, const invertbench::emulation::Sizes* sizes, const void* y,
                                        const void* first, const void* second, const void* bias, void* x, int* chosen) {
  static std::string message;
  try {
    const auto run = precise ? invertbench::emulation::invert<double> : invertbench::emulation::invert<float>;
    run(*sizes, y, first, second, bias, x, chosen);
    return nullptr;
  } catch (const std::exception& error) {
    message = error.what();
    return message.c_str();
  }
}
