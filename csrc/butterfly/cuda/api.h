// The butterfly on a device as plain functions: pointers, sizes and a stream. They launch work without waiting.
//
// Each returns nullptr, or the error message of the CUDA runtime.
#pragma once

#include <vector>

#include "butterfly/cuda/backward.h"

namespace invertbench {

struct DeviceFacts {
  DeviceLimits limits;
  int processors = 0, shared_bytes = 0;  // of a processor, which several blocks may share
};

const char* device_facts(int device, DeviceFacts& facts);

// Blocks of a launch: tiles times chunks of the batch, as many as the device runs at once beside `others`. `wide`: of
// float64.
int64_t chunks_of(const DeviceFacts& facts, const TileStage& stage, bool wide, int64_t others, int64_t batch);

template <class T>
const char* start_apply(const ApplyCall<T>& call, const DeviceFacts& facts, int64_t chunks, void* stream);
template <class T>
const char* start_backward(const BackwardCall<T>& call, const DeviceFacts& facts, int64_t chunks, void* stream);
template <class T>
const char* start_finish(const FinishCall<T>& call, void* stream);
template <class T>
const char* start_log_det(const LogDetCall<T>& call, int blocks, void* stream);
template <class T>
const char* start_log_det_total(const double* sums, int64_t count, T* log_det, void* stream);

}  // namespace invertbench
