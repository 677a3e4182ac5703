// The yardstick of the Emerging inverse: one pixel after the other, one multiply-add after the other, in float64.
//
// What the original's Cython does, without its interpreter overhead: compile with `-O2 -fno-tree-vectorize`, run on one
// thread. It reads only the taps that the masks keep and that lie inside the event, so it wastes no arithmetic.

#include <cstdint>

namespace {

// Solve one masked convolution in place. `sign` is 1 for w1, which looks down and to the right and whose centre tap is
// lower triangular, and -1 for w2.
void solve(double* x, const double* weight, int64_t channels, int64_t height, int64_t width, int64_t kernel_rows,
           int64_t kernel_columns, int64_t sign) {
  const int64_t pixels = height * width, taps = kernel_rows * kernel_columns;
  for (int64_t p = 0; p < pixels; ++p) {
    const int64_t pixel = sign > 0 ? pixels - 1 - p : p, row = pixel / width, column = pixel % width;
    const int64_t rows_left = sign > 0 ? height - 1 - row : row, columns_left = sign > 0 ? width - 1 - column : column;
    const int64_t reach_rows = kernel_rows / 2 < rows_left ? kernel_rows / 2 : rows_left;
    const int64_t reach_columns = kernel_columns / 2 < columns_left ? kernel_columns / 2 : columns_left;
    for (int64_t o = 0; o < channels; ++o) {
      const int64_t output = sign > 0 ? o : channels - 1 - o;
      const double* centre = weight + output * channels * taps + taps / 2;
      double sum = x[output * pixels + pixel];
      for (int64_t input = 0; input < channels; ++input) {
        for (int64_t i = 0; i <= reach_rows; ++i) {
          for (int64_t j = 0; j <= reach_columns; ++j) {
            if (i == 0 && j == 0 && (sign > 0 ? input >= output : input <= output)) continue;
            sum -= centre[input * taps + sign * (i * kernel_columns + j)] *
                   x[input * pixels + pixel + sign * (i * width + j)];
          }
        }
      }
      x[output * pixels + pixel] = sum / centre[output * taps];
    }
  }
}

}  // namespace

// Invert y = conv_w2(conv_w1(x)) + bias in place; all arrays contiguous, weights with their masked entries.
extern "C" void emerging_yardstick(double* x, const double* weight1, const double* weight2, const double* bias,
                                   int64_t events, int64_t channels, int64_t height, int64_t width,
                                   int64_t kernel_rows, int64_t kernel_columns) {
  for (int64_t event = 0; event < events; ++event) {
    double* own = x + event * channels * height * width;
    for (int64_t channel = 0; channel < channels; ++channel) {
      for (int64_t p = 0; p < height * width; ++p) own[channel * height * width + p] -= bias[channel];
    }
    solve(own, weight2, channels, height, width, kernel_rows, kernel_columns, -1);
    solve(own, weight1, channels, height, width, kernel_rows, kernel_columns, 1);
  }
}
