#include "coupling/perceptron.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "simd/cpu.h"

namespace invertbench {

#define INVERTBENCH_BODY "coupling/perceptron_tile.h"
#include "simd/each.h"

template <class T>
void forward_tiles(const Perceptron<T>& net, const Points<T>& x, T* hidden, T* y, int64_t begin, int64_t end) {
  INVERTBENCH_BEST(forward_tiles<T>)(net, x, hidden, y, begin, end);
}

template <class T>
void backward_tiles(const Perceptron<T>& net, const Points<T>& x, const Points<T>& gradient, const T* hidden, T* of_x,
                    int64_t of_x_stride, const Sums<T>& sums, int64_t begin, int64_t end) {
  INVERTBENCH_BEST(backward_tiles<T>)(net, x, gradient, hidden, of_x, of_x_stride, sums, begin, end);
}

#define INVERTBENCH_INSTANTIATE(T)                                                                             \
  template void forward_tiles(const Perceptron<T>&, const Points<T>&, T*, T*, int64_t, int64_t);               \
  template void backward_tiles(const Perceptron<T>&, const Points<T>&, const Points<T>&, const T*, T*, int64_t, \
                               const Sums<T>&, int64_t, int64_t);
INVERTBENCH_INSTANTIATE(float)
INVERTBENCH_INSTANTIATE(double)

}  // namespace invertbench
