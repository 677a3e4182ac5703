// The butterfly on a device: its kernels, and how they are started.

#include <cuda_runtime.h>

#include "butterfly/cuda/api.h"

namespace invertbench {
namespace {

template <class T>
constexpr int MOST = sizeof(T) == 8 ? MOST_THREADS_DOUBLE : MOST_THREADS;

template <class T, bool SHARED, bool KEPT>
__global__ void __launch_bounds__(MOST<T>, 1) apply_kernel(const __grid_constant__ ApplyCall<T> call) {
  DeviceBlock<ApplyState<T, KEPT>> block;
  apply_block<T, SHARED, KEPT>(block, call, int(blockIdx.x), int(blockIdx.y), int(gridDim.y));
}

template <class T, bool SHARED>
__global__ void __launch_bounds__(MOST<T>, 1) backward_kernel(const __grid_constant__ BackwardCall<T> call) {
  DeviceBlock<BackwardState<T>> block;
  backward_tiles<T, SHARED>(block, call, int(blockIdx.x), int(blockIdx.y), int(gridDim.y));
}

template <class T>
__global__ void __launch_bounds__(FINISH_THREADS) finish_kernel(const __grid_constant__ FinishCall<T> call) {
  DeviceBlock<Nothing> block;
  finish_matrices(block, call, int(blockIdx.x));
}

template <class T>
__global__ void __launch_bounds__(SUM_THREADS) log_det_kernel(const __grid_constant__ LogDetCall<T> call) {
  DeviceBlock<Nothing> block;
  log_det_block(block, call, int(blockIdx.x), int(gridDim.x));
}

template <class T>
__global__ void __launch_bounds__(SUM_THREADS) log_det_total_kernel(const double* sums, int64_t count, T* log_det) {
  DeviceBlock<Nothing> block;
  log_det_total(block, sums, count, log_det);
}

const char* said(cudaError_t error) { return error == cudaSuccess ? nullptr : cudaGetErrorString(error); }

// More than 48 KB of shared memory per block must be allowed for a kernel before it starts. The device's limit is set,
// not the size that this call needs: another host thread may be about to start the same kernel with more.
template <class Call>
const char* start(void (*kernel)(Call), const Call& call, const DeviceFacts& facts, int64_t rows, void* stream) {
  const TileStage& stage = call.stage;
  const cudaError_t allowed =
      cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                           facts.limits.shared_bytes);
  if (allowed != cudaSuccess) return said(allowed);
  const dim3 grid(unsigned(stage.tiles), unsigned(rows));
  kernel<<<grid, unsigned(stage.threads), size_t(stage.bytes), static_cast<cudaStream_t>(stream)>>>(call);
  return said(cudaGetLastError());
}

}  // namespace

const char* device_facts(int device, DeviceFacts& facts) {
  cudaError_t error = cudaDeviceGetAttribute(&facts.processors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&facts.shared_bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
  }
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&facts.limits.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  return said(error);
}

int64_t chunks_of(const DeviceFacts& facts, const TileStage& stage, bool wide, int64_t others, int64_t batch) {
  constexpr int RESERVED = 1024, REGISTERS = 65536;  // of a processor; the first in bytes, for each block
  const int of_a_thread = wide ? 256 : 168;          // as ptxas says
  const int64_t by_memory = facts.shared_bytes / (stage.bytes + RESERVED);
  const int64_t by_registers = REGISTERS / (of_a_thread * stage.threads);
  const int64_t resident = facts.processors * std::max<int64_t>(1, std::min(by_memory, by_registers));
  const int64_t groups = (batch + stage.samples - 1) / stage.samples;
  return std::clamp<int64_t>((resident - others) / stage.tiles, 1, std::min<int64_t>(std::max<int64_t>(groups, 1), 65534));
}

template <class T>
const char* start_apply(const ApplyCall<T>& call, const DeviceFacts& facts, int64_t chunks, void* stream) {
  const int64_t rows = chunks + (call.log_det.ranges > 0);
  if (call.stage.shared) return start(apply_kernel<T, true, false>, call, facts, rows, stream);
  if constexpr (sizeof(T) == 4) {
    if (call.stage.kept) return start(apply_kernel<T, false, true>, call, facts, rows, stream);
  }
  return start(apply_kernel<T, false, false>, call, facts, rows, stream);
}

template <class T>
const char* start_backward(const BackwardCall<T>& call, const DeviceFacts& facts, int64_t chunks, void* stream) {
  return call.stage.shared ? start(backward_kernel<T, true>, call, facts, chunks, stream)
                           : start(backward_kernel<T, false>, call, facts, chunks, stream);
}

template <class T>
const char* start_finish(const FinishCall<T>& call, void* stream) {
  const int64_t blocks = (call.stage.weights_count + FINISH_MATRICES - 1) / FINISH_MATRICES;
  if (blocks == 0) return nullptr;
  finish_kernel<<<unsigned(blocks), FINISH_THREADS, FINISH_BYTES, static_cast<cudaStream_t>(stream)>>>(call);
  return said(cudaGetLastError());
}

template <class T>
const char* start_log_det(const LogDetCall<T>& call, int blocks, void* stream) {
  log_det_kernel<<<unsigned(blocks), SUM_THREADS, SUM_THREADS * sizeof(double), static_cast<cudaStream_t>(stream)>>>(
      call);
  return said(cudaGetLastError());
}

template <class T>
const char* start_log_det_total(const double* sums, int64_t count, T* log_det, void* stream) {
  log_det_total_kernel<<<1, SUM_THREADS, SUM_THREADS * sizeof(double), static_cast<cudaStream_t>(stream)>>>(
      sums, count, log_det);
  return said(cudaGetLastError());
}

#define INVERTBENCH_STARTS(T)                                                       \
  template const char* start_apply<T>(const ApplyCall<T>&, const DeviceFacts&, int64_t, void*);       \
  template const char* start_backward<T>(const BackwardCall<T>&, const DeviceFacts&, int64_t, void*); \
  template const char* start_finish<T>(const FinishCall<T>&, void*);                \
  template const char* start_log_det<T>(const LogDetCall<T>&, int, void*);               \
  template const char* start_log_det_total<T>(const double*, int64_t, T*, void*);
INVERTBENCH_STARTS(float)
INVERTBENCH_STARTS(double)

}  // namespace invertbench
