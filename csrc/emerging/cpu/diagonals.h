// Both triangular solves of an Emerging convolution, vectorised over the pixels of an anti-diagonal, which do not
// depend on one another: for batches too small to fill vectors with events.
//
// Included after emerging/cpu/events.h by simd/each.h: no include guard.

// The tile of one event: the rows of lanes of pixel number d are all pixels (r, d - r), lane r. Zeros are on all
// sides, as far as taps reach, so that no pixel needs bounds of its own.
template <typename T, int WIDTH>
struct DiagonalTile {
  static constexpr int64_t group = WIDTH * LANES<T>;
  int64_t height, width, channels, count, margin, stride, lane_margin;

  explicit DiagonalTile(const Problem<T>& work)
      : height(work.height), width(work.width), channels(work.channels), count(height + width - 1),
        margin(work.rows() + work.columns() - 2),
        stride((height + group - 1) / group * group + 2 * (work.rows() - 1)), lane_margin(work.rows() - 1) {}

  int64_t size() const { return (count + 2 * margin) * channels * stride; }
  int64_t row(int64_t diagonal, int64_t place) const {
    return ((margin + diagonal) * channels + place) * stride + lane_margin;
  }
  int64_t low(int64_t diagonal) const { return std::max<int64_t>(0, diagonal - width + 1); }
  int64_t end(int64_t diagonal) const { return std::min(diagonal + 1, height); }
};

template <typename T, int WIDTH>
int64_t diagonals_tile(const Problem<T>& work) {
  return DiagonalTile<T, WIDTH>(work).size();
}

// One step: all pixels of a diagonal, `backwards` for w1.
template <typename T, int WIDTH>
void solve_diagonal(
    const CausalTaps<T>& taps, const DiagonalTile<T, WIDTH>& shape, int64_t diagonal, bool backwards, T* tile) {
  const int64_t step = backwards ? -shape.stride : shape.stride;
  const int64_t row_step = shape.channels * step + (backwards ? -1 : 1);
  T* pixels = tile + shape.row(diagonal, backwards ? shape.channels - 1 : 0);
  for (int64_t r = shape.low(diagonal) / shape.group * shape.group; r < shape.end(diagonal); r += shape.group) {
    convert_pixel<T, false, WIDTH>(taps, pixels + r, step, row_step, taps.rows - 1, taps.columns - 1);
  }
}

// Invert one event.
template <typename T, int WIDTH>
void invert_diagonals(const Tiled<T>& work, int64_t event, T* tile) {
  const DiagonalTile<T, WIDTH> shape(work);
  const int64_t channels = work.channels, pixels = work.height * work.width;
  std::fill(tile, tile + shape.size(), T(0));
  for (int64_t channel = 0; channel < channels; ++channel) {
    const T offset = work.bias == nullptr ? T(0) : work.bias[channel];
    const T* source = work.input + (event * channels + channel) * pixels;
    for (int64_t d = 0; d < shape.count; ++d) {
      T* row = tile + shape.row(d, channels - 1 - channel);
      for (int64_t r = shape.low(d); r < shape.end(d); ++r) row[r] = source[r * (work.width - 1) + d] - offset;
    }
  }
  for (int64_t d = 0; d < shape.count; ++d) solve_diagonal(work.second, shape, d, false, tile);
  // No pixel has read the values beyond the ends of a diagonal, but in the other direction some would.
  for (int64_t d = 0; d < shape.count; ++d) {
    for (int64_t place = 0; place < channels; ++place) {
      T* row = tile + shape.row(d, place);
      std::fill(row - shape.lane_margin, row + shape.low(d), T(0));
      std::fill(row + shape.end(d), row - shape.lane_margin + shape.stride, T(0));
    }
  }
  for (int64_t d = shape.count - 1; d >= 0; --d) solve_diagonal(work.first, shape, d, true, tile);
  for (int64_t channel = 0; channel < channels; ++channel) {
    T* target = work.output + (event * channels + channel) * pixels;
    for (int64_t d = 0; d < shape.count; ++d) {
      const T* row = tile + shape.row(d, channels - 1 - channel);
      for (int64_t r = shape.low(d); r < shape.end(d); ++r) target[r * (work.width - 1) + d] = row[r];
    }
  }
}
