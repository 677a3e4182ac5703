// The kernel of products.h, started by device_run.py through ctypes.

#include <cuda_runtime.h>

#include <algorithm>

#include "products.h"

namespace invertbench {
namespace {

template <int ROWS, int PAIRS, int SAMPLES>
__global__ void __launch_bounds__(ProductTile<ROWS, PAIRS, SAMPLES>::THREADS)
    multiply_kernel(const __grid_constant__ ProductCall call) {
  DeviceBlock<ProductState> block;
  multiply_tile<ROWS, PAIRS, SAMPLES>(block, call, int(blockIdx.x), int(blockIdx.y), int(gridDim.y));
}

template <int ROWS>
__global__ void __launch_bounds__(GradientTile<ROWS>::THREADS)
    gradient_kernel(const __grid_constant__ GradientCall call) {
  DeviceBlock<GradientState> block;
  sum_gradients<ROWS>(block, call, int(blockIdx.x), int(blockIdx.y), int(gridDim.y));
}

template <class Rows>
cudaError_t start_gradients(Rows, const GradientCall& call, int chunks, cudaStream_t stream) {
  using Tile = GradientTile<Rows::value>;
  const auto kernel = gradient_kernel<Rows::value>;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::BYTES);
  if (error != cudaSuccess) return error;
  const int tiles = (call.at.pairs + call.at.used - 1) / call.at.used;
  kernel<<<dim3(unsigned(tiles), unsigned(chunks)), Tile::THREADS, Tile::BYTES, stream>>>(call);
  return cudaGetLastError();
}

template <class Shape>
cudaError_t start(Shape, const ProductCall& call, cudaStream_t stream) {
  using Tile = ProductTile<Shape::ROWS, Shape::PAIRS, Shape::SAMPLES>;
  const auto kernel = multiply_kernel<Shape::ROWS, Shape::PAIRS, Shape::SAMPLES>;
  int device = 0, processors = 0, resident = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::BYTES);
  }
  if (error == cudaSuccess) {
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, Tile::THREADS, Tile::BYTES);
  }
  if (error != cudaSuccess) return error;
  const int tiles = (call.pairs + call.used - 1) / call.used;
  const int64_t groups = (call.batch + Shape::SAMPLES - 1) / Shape::SAMPLES;
  const int64_t chunks = std::clamp<int64_t>(int64_t(processors) * resident / tiles, 1, std::max<int64_t>(groups, 1));
  kernel<<<dim3(unsigned(tiles), unsigned(chunks)), Tile::THREADS, Tile::BYTES, stream>>>(call);
  return cudaGetLastError();
}

}  // namespace
}  // namespace invertbench

// nullptr, or what was wrong.
extern "C" __attribute__((visibility("default"))) const char* multiply_out(const float* blocks, const float* x, float* y,
                                                                            long long batch, int outer, int inner,
                                                                            int rows, int shape, void* stream) {
  cudaError_t error = cudaSuccess;
  const bool there = invertbench::by_shape(
      blocks, x, y, batch, outer, inner, rows, shape, [&](auto tile, const invertbench::ProductCall& call) {
        error = invertbench::start(tile, call, static_cast<cudaStream_t>(stream));
      });
  if (!there) return "blocks are of 8, 16 or 32 rows";
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

// The same; gradients is (chunks, o, c, r, q), all of it written.
extern "C" __attribute__((visibility("default"))) const char* sum_block_gradients(const float* x, const float* dy,
                                                                                  float* gradients, long long batch,
                                                                                  int outer, int inner, int rows,
                                                                                  int chunks, void* stream) {
  cudaError_t error = cudaSuccess;
  const bool there = invertbench::by_rows(
      x, dy, gradients, batch, outer, inner, rows, [&](auto size, const invertbench::GradientCall& call) {
        error = invertbench::start_gradients(size, call, chunks, static_cast<cudaStream_t>(stream));
      });
  if (!there) return "blocks are of 8, 16 or 32 rows";
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
