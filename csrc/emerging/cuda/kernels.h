// The inverse of an Emerging convolution on a device: bodies of its kernels for a block of threads (see cuda/block.h),
// and their launches.
//
// Either solve is a causal convolution with a lower triangular centre T (see `pack_taps` in emerging/cpu/tiles.h,
// which also defines how the second kernel is reversed to become one):
//   sum over 0 <= i < rows, 0 <= j < columns of A[i, j] x[r - i, s - j] = y[r, s],   A[0, 0] = T.
// `prepare_column` solves T for the columns of the identity and of all other taps, once per call. With these
//   x[r, s] = T^-1 y[r, s] - sum over the taps but the first of T^-1 A[i, j] x[r - i, s - j],
// which one block computes along the anti-diagonals of an event: all channels of all pixels of a diagonal at
// once, both kernels one after the other. A sequence is an image of one row: its diagonals are single positions.
#pragma once

#include <algorithm>

#include "cuda/block.h"

namespace invertbench {

constexpr int EMERGING_THREADS = 512;
constexpr int EMERGING_FEW = 32;  // products up to which one thread adds them alone, without waiting for others
constexpr int EMERGING_PREPARE_THREADS = 128;

template <class T>
struct EmergingCall {
  int64_t events = 0;
  int channels = 0, height = 0, width = 0;
  int kernel_rows = 0, kernel_columns = 0;
  int rows = 0, columns = 0, taps = 0;  // kept, and reached by a pixel; taps = rows columns
  int parts = 1;                        // threads that share the sum of an entry
  int pitch = 0;                        // of a channel of an image
  int threads = 0, images_at = 0, scratch_at = 0, bytes = 0;
  bool images_shared = false, taps_shared = false;
  Divisor by_channels, by_columns;
  const T *input = nullptr, *bias = nullptr, *first = nullptr, *second = nullptr;  // bias: nullptr for none
  T* output = nullptr;
  T* packed = nullptr;     // (2, taps, input, output): of the first kernel and of the second, in the order of its solve
  T* workspace = nullptr;  // an event for each block, if the images are not in shared memory
};

// Choose how an event is processed; sets all but the pointers.
template <class T>
void plan_emerging(EmergingCall<T>& call, int shared_bytes) {
  const int diagonal = std::min(call.height, call.width), pixels = call.height * call.width;
  call.rows = std::min(call.kernel_rows / 2 + 1, call.height);
  call.columns = std::min(call.kernel_columns / 2 + 1, call.width);
  call.taps = call.rows * call.columns;
  call.by_channels = Divisor(call.channels);
  call.by_columns = Divisor(call.columns);
  const int entries = diagonal * call.channels;
  if ((call.taps - 1) * call.channels > EMERGING_FEW) {
    call.parts = std::max(1, std::min(call.taps - 1, EMERGING_THREADS / entries));
  }
  call.threads = std::clamp((entries * call.parts + 31) / 32 * 32, 64, EMERGING_THREADS);
  const int64_t number = int64_t(sizeof(T));
  const int64_t all_taps = int64_t(call.taps) * call.channels * call.channels * number;
  const int64_t scratch = (call.parts > 1 ? int64_t(entries) * call.parts : 0) * number;
  const int64_t images = 2 * int64_t(call.channels) * (pixels | 1) * number;
  call.images_shared = scratch + images <= shared_bytes;
  call.pitch = call.images_shared ? pixels | 1 : pixels;  // odd: channels of a pixel are in different banks
  const int64_t held = scratch + (call.images_shared ? images : 0);
  call.taps_shared = held + all_taps <= shared_bytes;
  call.scratch_at = int(call.taps_shared ? all_taps : 0);
  call.images_at = call.scratch_at + int(scratch);
  call.bytes = int(held + (call.taps_shared ? all_taps : 0));
}

template <class T, class Block>
INVERTBENCH_DEVICE T kernel_entry(const Block& block, const EmergingCall<T>& call, bool second, int output, int input,
                                  int tap) {
  const int i = call.by_columns.divide(tap), j = tap - i * call.columns, all = call.kernel_rows * call.kernel_columns;
  const int away = i * call.kernel_columns + j;
  if (!second) return block.load(call.first + (int64_t(output) * call.channels + input) * all + all / 2 + away);
  const int64_t row = call.channels - 1 - output, column = call.channels - 1 - input;
  return block.load(call.second + (row * call.channels + column) * all + all / 2 - away);
}

// Column `column` of T^-1 [I, A]: of the identity, or of a tap.
template <class T, class Block>
INVERTBENCH_DEVICE void prepare_column(Block& block, const EmergingCall<T>& call, bool second, int column) {
  const int tap = call.by_channels.divide(column), input = column - tap * call.channels;
  const auto rest = block.template shared<T>(0);
  block.step([&](int thread, Nothing&) {
    for (int o = thread; o < call.channels; o += block.threads()) {
      rest[o] = tap > 0 ? kernel_entry(block, call, second, o, input, tap) : T(o == input);
    }
  });
  for (int k = 0; k + 1 < call.channels; ++k) {
    block.step([&](int thread, Nothing&) {
      const T solved = T(rest[k]) / kernel_entry(block, call, second, k, k, 0);
      for (int o = k + 1 + thread; o < call.channels; o += block.threads()) {
        rest[o] = T(rest[o]) - kernel_entry(block, call, second, o, k, 0) * solved;
      }
    });
  }
  block.step([&](int thread, Nothing&) {
    T* to = call.packed + ((int64_t(second) * call.taps + tap) * call.channels + input) * call.channels;
    for (int o = thread; o < call.channels; o += block.threads()) {
      block.store(to + o, T(rest[o]) / kernel_entry(block, call, second, o, o, 0));
    }
  });
}

// An entry of an event in the order of a solve: the second kernel's has the channels reversed, the first's the pixels.
template <class T>
INVERTBENCH_DEVICE int place_of(const EmergingCall<T>& call, bool second, int channel, int pixel) {
  return second ? (call.channels - 1 - channel) * call.pitch + pixel
                : channel * call.pitch + call.height * call.width - 1 - pixel;
}

// T^-1 y for every pixel, from one image to the other.
template <class T, class Block, class Image, class Taps>
INVERTBENCH_DEVICE void solve_centres(Block& block, const EmergingCall<T>& call, bool second, Image from, Image to,
                                      const Taps& taps) {
  block.step([&](int thread, Nothing&) {
    const int entries = call.height * call.width * call.channels;
    for (int e = thread; e < entries; e += block.threads()) {
      const int pixel = call.by_channels.divide(e), output = e - pixel * call.channels;
      T sum = 0;
      for (int i = 0; i <= output; ++i) {
        sum += taps(i * call.channels + output) * T(from[place_of(call, second, i, pixel)]);
      }
      to[place_of(call, second, output, pixel)] = sum;
    }
  });
}

template <class T, class Block, class Image, class Taps>
INVERTBENCH_DEVICE void solve_diagonals(Block& block, const EmergingCall<T>& call, bool second, Image image,
                                        const Taps& taps) {
  const auto scratch = block.template shared<T>(call.scratch_at);
  const int square = call.channels * call.channels;
  INVERTBENCH_ROLLED
  for (int d = 0; d < call.height + call.width - 1; ++d) {
    const int low = d < call.width ? 0 : d - call.width + 1, high = d < call.height ? d : call.height - 1;
    const int entries = (high - low + 1) * call.channels;
    block.step([&](int thread, Nothing&) {
      for (int e = thread; e < entries * call.parts; e += block.threads()) {
        const int part = call.parts > 1 ? e / entries : 0, entry = e - part * entries;
        const int along = call.by_channels.divide(entry), output = entry - along * call.channels;
        const int row = low + along, column = d - row;
        T sum = 0;
        for (int tap = 1 + part; tap < call.taps; tap += call.parts) {
          const int i = call.by_columns.divide(tap), j = tap - i * call.columns;
          if (i > row || j > column) continue;
          const int pixel = (row - i) * call.width + column - j;
          for (int input = 0; input < call.channels; ++input) {
            sum += taps(tap * square + input * call.channels + output) *
                   T(image[place_of(call, second, input, pixel)]);
          }
        }
        if (call.parts > 1) {
          scratch[e] = sum;
        } else {
          const int own = place_of(call, second, output, row * call.width + column);
          image[own] = T(image[own]) - sum;
        }
      }
    });
    if (call.parts == 1) continue;
    block.step([&](int thread, Nothing&) {
      for (int e = thread; e < entries; e += block.threads()) {
        const int along = call.by_channels.divide(e), row = low + along;
        T sum = 0;
        for (int part = 0; part < call.parts; ++part) sum += T(scratch[part * entries + e]);
        const int own = place_of(call, second, e - along * call.channels, row * call.width + d - row);
        image[own] = T(image[own]) - sum;
      }
    });
  }
}

// Inverts events `first`, first + stride, ... : from `image`, by way of `other`, back to `image`.
template <class T, class Block, class Image, class Output>
INVERTBENCH_DEVICE void invert_event(Block& block, const EmergingCall<T>& call, int64_t event, Image image,
                                     Image other, const Output& output) {
  const int pixels = call.height * call.width;
  const auto held = block.template shared<T>(0);
  block.step([&](int thread, Nothing&) {
    for (int channel = 0; channel < call.channels; ++channel) {
      const T offset = call.bias == nullptr ? T(0) : block.load(call.bias + channel);
      for (int pixel = thread; pixel < pixels; pixel += block.threads()) {
        const T value = block.load(call.input + (event * call.channels + channel) * pixels + pixel);
        image[channel * call.pitch + pixel] = value - offset;
      }
    }
  });
  for (int kernel = 1; kernel >= 0; --kernel) {
    const bool second = kernel == 1;
    const int numbers = call.taps * call.channels * call.channels;
    const T* packed = call.packed + int64_t(kernel) * numbers;
    if (call.taps_shared) {
      block.step([&](int thread, Nothing&) {
        for (int i = thread; i < numbers; i += block.threads()) held[i] = block.load(packed + i);
      });
    }
    const auto taps = [&](int i) { return call.taps_shared ? T(held[i]) : block.load(packed + i); };
    solve_centres(block, call, second, second ? image : other, second ? other : image, taps);
    solve_diagonals(block, call, second, second ? other : image, taps);
  }
  block.step([&](int thread, Nothing&) { output(thread); });
}

template <class T, bool IMAGES_SHARED, class Block>
INVERTBENCH_DEVICE void invert_events(Block& block, const EmergingCall<T>& call, int64_t number, int64_t blocks) {
  const int pixels = call.height * call.width, size = call.channels * pixels;
  for (int64_t event = number; event < call.events; event += blocks) {
    T* const target = call.output + event * size;
    if constexpr (IMAGES_SHARED) {
      const auto image = block.template shared<T>(call.images_at);
      invert_event(block, call, event, image, image + call.channels * call.pitch, [&](int thread) {
        for (int channel = 0; channel < call.channels; ++channel) {
          for (int pixel = thread; pixel < pixels; pixel += block.threads()) {
            block.store(target + channel * pixels + pixel, T(image[channel * call.pitch + pixel]));
          }
        }
      });
    } else {
      invert_event(block, call, event, target, call.workspace + number * size, [](int) {});
    }
  }
}

struct EmergingFacts {
  int shared_bytes = 0, processors = 0;
};

// Plain functions that launch work on a stream without waiting; return nullptr, or the error of the CUDA runtime.
const char* emerging_facts(int device, EmergingFacts& facts);
template <class T>
const char* start_emerging(const EmergingCall<T>& call, const EmergingFacts& facts, int64_t blocks, void* stream);

}  // namespace invertbench
