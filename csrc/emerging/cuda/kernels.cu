// The inverse of an Emerging convolution on a device: its kernels, and how they are started.

#include <cuda_runtime.h>

#include "emerging/cuda/kernels.h"

namespace invertbench {
namespace {

template <class T>
__global__ void __launch_bounds__(EMERGING_PREPARE_THREADS) prepare_kernel(const __grid_constant__ EmergingCall<T> call) {
  DeviceBlock<Nothing> block;
  prepare_column(block, call, blockIdx.y == 1, int(blockIdx.x));
}

template <class T, bool IMAGES_SHARED>
__global__ void __launch_bounds__(EMERGING_THREADS) invert_kernel(const __grid_constant__ EmergingCall<T> call) {
  DeviceBlock<Nothing> block;
  invert_events<T, IMAGES_SHARED>(block, call, int64_t(blockIdx.x), int64_t(gridDim.x));
}

const char* said(cudaError_t error) { return error == cudaSuccess ? nullptr : cudaGetErrorString(error); }

}  // namespace

const char* emerging_facts(int device, EmergingFacts& facts) {
  cudaError_t error = cudaDeviceGetAttribute(&facts.processors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&facts.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  return said(error);
}

template <class T>
const char* start_emerging(const EmergingCall<T>& call, const EmergingFacts& facts, int64_t blocks, void* stream) {
  const auto at = static_cast<cudaStream_t>(stream);
  const dim3 columns(unsigned(call.taps) * unsigned(call.channels), 2);
  prepare_kernel<<<columns, EMERGING_PREPARE_THREADS, size_t(call.channels) * sizeof(T), at>>>(call);
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) return said(error);
  void (*kernel)(EmergingCall<T>) = call.images_shared ? invert_kernel<T, true> : invert_kernel<T, false>;
  // The device's limit, not the size that this call needs: see butterfly/cuda/kernels.cu.
  error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                               facts.shared_bytes);
  if (error != cudaSuccess) return said(error);
  kernel<<<unsigned(blocks), unsigned(call.threads), size_t(call.bytes), at>>>(call);
  return said(cudaGetLastError());
}

template const char* start_emerging<float>(const EmergingCall<float>&, const EmergingFacts&, int64_t, void*);
template const char* start_emerging<double>(const EmergingCall<double>&, const EmergingFacts&, int64_t, void*);

}  // namespace invertbench
