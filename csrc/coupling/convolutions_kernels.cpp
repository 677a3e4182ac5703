#include "coupling/convolutions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "simd/cpu.h"

namespace invertbench {

#define INVERTBENCH_BODY "coupling/convolutions_tile.h"
#include "simd/each.h"

template <class T>
void pack(const WeightNorm<T>& of, const Order& order, T* to, int64_t begin, int64_t end) {
  INVERTBENCH_BEST(pack<T>)(of, order, to, begin, end);
}

template <class T>
void unpack_gradients(const WeightNorm<T>& of, const Order& order, const T* of_weight, T* of_gain, T* of_direction,
                      int64_t begin, int64_t end) {
  INVERTBENCH_BEST(unpack_gradients<T>)(of, order, of_weight, of_gain, of_direction, begin, end);
}

template <class T>
void forward_images(const Network<T>& net, const Images<T>& x, T* saved, T* y, int64_t begin, int64_t end) {
  INVERTBENCH_BEST(forward_images<T>)(net, x, saved, y, begin, end);
}

template <class T>
void backward_images(const Network<T>& net, const Images<T>& x, const std::array<Images<T>, 2>& gradients,
                     const T* saved, T* of_x, int64_t of_x_stride, const Gradients<T>& sums, int64_t together,
                     int64_t begin, int64_t end) {
  INVERTBENCH_BEST(backward_images<T>)(net, x, gradients, saved, of_x, of_x_stride, sums, together, begin, end);
}

#define INVERTBENCH_INSTANTIATE(T)                                                                                     \
  template void pack(const WeightNorm<T>&, const Order&, T*, int64_t, int64_t);                                        \
  template void unpack_gradients(const WeightNorm<T>&, const Order&, const T*, T*, T*, int64_t, int64_t);              \
  template void forward_images(const Network<T>&, const Images<T>&, T*, T*, int64_t, int64_t);                         \
  template void backward_images(const Network<T>&, const Images<T>&, const std::array<Images<T>, 2>&, const T*, T*,    \
                                int64_t, const Gradients<T>&, int64_t, int64_t, int64_t);
INVERTBENCH_INSTANTIATE(float)
INVERTBENCH_INSTANTIATE(double)

}  // namespace invertbench
