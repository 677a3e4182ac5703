// Both masked convolutions of an Emerging convolution, or both triangular solves of its inverse, vectorised over the
// events of a batch.
//
// Included by simd/each.h, in the namespace of an instruction set: no include guard.
//
// A tile holds, for each pixel and each channel, one row of lanes: here the same entry of several events. The
// channels of a pixel are in reverse order. Read from the front, rows of lanes then come in the order in which w2 is
// solved; read from the back, in the order of w1. Either way a solve is the forward substitution of `CausalTaps`, and
// the inputs of one row of taps are one run of rows of lanes. `step` is the distance from one row of lanes to the
// next in the order of the solve: negative from the back.

template <typename T, int BYTES>
struct VectorOf {
  typedef T type __attribute__((vector_size(BYTES), may_alias, aligned(sizeof(T))));
};

template <typename T>
using Vector = typename VectorOf<T, INVERTBENCH_BYTES>::type;

template <typename T>
constexpr int64_t LANES = INVERTBENCH_BYTES / sizeof(T);

// sums[o] += weights[k][o] * x[k] over a run of k.
template <typename T, int OUTPUTS, int WIDTH>
INVERTBENCH_INLINE void add_run(
    Vector<T> (&sums)[OUTPUTS][WIDTH], const T* weights, const T* x, int64_t step, int64_t length) {
  for (int64_t k = 0; k < length; ++k, x += step, weights += OUTPUTS) {
    Vector<T> values[WIDTH];
    INVERTBENCH_UNROLL
    for (int v = 0; v < WIDTH; ++v) values[v] = reinterpret_cast<const Vector<T>*>(x)[v];
    INVERTBENCH_UNROLL
    for (int o = 0; o < OUTPUTS; ++o) {
      INVERTBENCH_UNROLL
      for (int v = 0; v < WIDTH; ++v) sums[o][v] += weights[o] * values[v];
    }
  }
}

// Solve for one block of channels, or with `APPLY` replace it by the convolution; `up` rows above and `left` columns to
// the left exist. These, and lower channels, are solved; those that a convolution reads are not replaced yet.
//
// The sums start from zero and not from the right-hand side: the error is then a third where they are long.
template <typename T, bool APPLY, int OUTPUTS, int WIDTH>
void convert_block(
    const CausalTaps<T>& taps, const Block<T>& block, T* pixel, int64_t step, int64_t row_step, int64_t up,
    int64_t left) {
  const int64_t channels = taps.channels;
  const T* weights = block.weights + (taps.columns - 1 - left) * channels * OUTPUTS;
  const T* leftmost = pixel - left * channels * step;
  Vector<T> sums[OUTPUTS][WIDTH] = {};
  for (int64_t i = up; i >= 0; --i) {
    const int64_t length = left * channels + (i > 0 ? channels : block.first);
    add_run<T, OUTPUTS, WIDTH>(
        sums, weights + i * taps.columns * channels * OUTPUTS, leftmost - i * row_step, step, length);
  }
  const T* triangle = block.weights + ((taps.columns - 1) * channels + block.first) * OUTPUTS;
  T* own = pixel + block.first * step;
  INVERTBENCH_UNROLL
  for (int o = 0; o < OUTPUTS; ++o) {
    INVERTBENCH_UNROLL
    for (int v = 0; v < WIDTH; ++v) {
      Vector<T>& entry = reinterpret_cast<Vector<T>*>(own + o * step)[v];
      const Vector<T> value = APPLY ? entry : (entry - sums[o][v]) * block.reciprocals[o];
      INVERTBENCH_UNROLL
      for (int later = o + (APPLY ? 0 : 1); later < OUTPUTS; ++later) {
        sums[later][v] += triangle[o * OUTPUTS + later] * value;
      }
      entry = APPLY ? sums[o][v] : value;
    }
  }
}

template <typename T, bool APPLY, int WIDTH>
void convert_pixel(
    const CausalTaps<T>& taps, T* pixel, int64_t step, int64_t row_step, int64_t up, int64_t left) {
  static_assert(LARGEST_BLOCK == 6);
  const int64_t count = static_cast<int64_t>(taps.blocks.size());
  for (int64_t b = 0; b < count; ++b) {
    const Block<T>& block = taps.blocks[APPLY ? count - 1 - b : b];
    switch (block.size) {
      case 1: convert_block<T, APPLY, 1, WIDTH>(taps, block, pixel, step, row_step, up, left); break;
      case 2: convert_block<T, APPLY, 2, WIDTH>(taps, block, pixel, step, row_step, up, left); break;
      case 3: convert_block<T, APPLY, 3, WIDTH>(taps, block, pixel, step, row_step, up, left); break;
      case 4: convert_block<T, APPLY, 4, WIDTH>(taps, block, pixel, step, row_step, up, left); break;
      case 5: convert_block<T, APPLY, 5, WIDTH>(taps, block, pixel, step, row_step, up, left); break;
      default: convert_block<T, APPLY, 6, WIDTH>(taps, block, pixel, step, row_step, up, left);
    }
  }
}

// Transpose a square of 16 bytes a side.
template <typename T>
INVERTBENCH_INLINE void transpose(
    typename VectorOf<T, 16>::type (&rows)[16 / sizeof(T)]) {
  using Row = typename VectorOf<T, 16>::type;
  if constexpr (sizeof(T) == 4) {
    const Row a = INVERTBENCH_SHUFFLE(int32_t, rows[0], rows[1], 0, 4, 1, 5);
    const Row b = INVERTBENCH_SHUFFLE(int32_t, rows[2], rows[3], 0, 4, 1, 5);
    const Row c = INVERTBENCH_SHUFFLE(int32_t, rows[0], rows[1], 2, 6, 3, 7);
    const Row d = INVERTBENCH_SHUFFLE(int32_t, rows[2], rows[3], 2, 6, 3, 7);
    rows[0] = INVERTBENCH_SHUFFLE(int32_t, a, b, 0, 1, 4, 5);
    rows[1] = INVERTBENCH_SHUFFLE(int32_t, a, b, 2, 3, 6, 7);
    rows[2] = INVERTBENCH_SHUFFLE(int32_t, c, d, 0, 1, 4, 5);
    rows[3] = INVERTBENCH_SHUFFLE(int32_t, c, d, 2, 3, 6, 7);
  } else {
    const Row a = rows[0];
    rows[0] = INVERTBENCH_SHUFFLE(int64_t, a, rows[1], 0, 2);
    rows[1] = INVERTBENCH_SHUFFLE(int64_t, a, rows[1], 1, 3);
  }
}

// Bring the pixels from `start` to `stop` of the events from `first_event` on into the tile, less a bias if there is
// one. Where fewer events are left than the tile holds, the last is repeated.
template <typename T, int WIDTH>
void load_events(
    const Tiled<T>& work, const T* bias, int64_t first_event, int64_t start, int64_t stop, T* tile) {
  using Row = typename VectorOf<T, 16>::type;
  constexpr int64_t side = 16 / sizeof(T), events = WIDTH * LANES<T>;
  const int64_t pixels = work.height * work.width, channels = work.channels, whole = stop - (stop - start) % side;
  for (int64_t channel = 0; channel < channels; ++channel) {
    const T offset = bias == nullptr ? T(0) : bias[channel];
    T* column = tile + (channels - 1 - channel) * events;
    for (int64_t event = 0; event < events; event += side, column += side) {
      const T* sources[side];
      for (int64_t e = 0; e < side; ++e) {
        const int64_t source = std::min(first_event + event + e, work.events - 1);
        sources[e] = work.input + (source * channels + channel) * pixels;
      }
      int64_t pixel = start;
      for (; pixel < whole; pixel += side) {
        Row rows[side];
        for (int64_t e = 0; e < side; ++e) rows[e] = *reinterpret_cast<const Row*>(sources[e] + pixel) - offset;
        transpose<T>(rows);
        for (int64_t p = 0; p < side; ++p) {
          *reinterpret_cast<Row*>(column + (pixel + p) * channels * events) = rows[p];
        }
      }
      for (; pixel < stop; ++pixel) {
        for (int64_t e = 0; e < side; ++e) column[pixel * channels * events + e] = sources[e][pixel] - offset;
      }
    }
  }
}

// Copy the pixels from `start` to `stop` from the tile to their places in `output`, and add a bias if there is one.
template <typename T, int WIDTH>
void store_events(
    const Tiled<T>& work, const T* bias, int64_t first_event, int64_t start, int64_t stop, const T* tile, T* output) {
  using Row = typename VectorOf<T, 16>::type;
  constexpr int64_t side = 16 / sizeof(T), events = WIDTH * LANES<T>;
  const int64_t pixels = work.height * work.width, channels = work.channels, whole = stop - (stop - start) % side;
  const int64_t held = std::min(events, work.events - first_event);
  for (int64_t channel = 0; channel < channels; ++channel) {
    const T offset = bias == nullptr ? T(0) : bias[channel];
    const T* column = tile + (channels - 1 - channel) * events;
    for (int64_t event = 0; event < held; event += side, column += side) {
      T* target = output + ((first_event + event) * channels + channel) * pixels;
      const int64_t count = std::min(side, held - event);
      int64_t pixel = start;
      for (; pixel < whole; pixel += side) {
        Row rows[side];
        for (int64_t p = 0; p < side; ++p) {
          rows[p] = *reinterpret_cast<const Row*>(column + (pixel + p) * channels * events) + offset;
        }
        transpose<T>(rows);
        for (int64_t e = 0; e < count; ++e) {
          *reinterpret_cast<Row*>(target + e * channels * pixels + pixel) = rows[e];
        }
      }
      for (; pixel < stop; ++pixel) {
        for (int64_t e = 0; e < count; ++e) {
          target[e * channels * pixels + pixel] = column[pixel * channels * events + e] + offset;
        }
      }
    }
  }
}

// Return how many numbers the tile of `invert_events` and `apply_events` holds.
template <typename T, int WIDTH>
int64_t events_tile(const Problem<T>& work) {
  return work.height * work.width * work.channels * WIDTH * LANES<T>;
}

// Solve for `count` pixels from (row, column) on, counted in the order of the solve, and advance to the next.
template <typename T, int WIDTH>
void solve_pixels(
    const CausalTaps<T>& taps, T*& pixel, int64_t& row, int64_t& column, int64_t count, int64_t width, int64_t step) {
  const int64_t pixel_step = taps.channels * step;
  for (; count > 0; --count, pixel += pixel_step) {
    const int64_t up = std::min(taps.rows - 1, row), left = std::min(taps.columns - 1, column);
    convert_pixel<T, false, WIDTH>(taps, pixel, step, width * pixel_step, up, left);
    if (++column == width) {
      column = 0;
      ++row;
    }
  }
}

// Apply a convolution in place to `count` pixels from (row, column) on, against the order of the solve, and go back to
// the one before.
template <typename T, int WIDTH>
void apply_pixels(
    const CausalTaps<T>& taps, T*& pixel, int64_t& row, int64_t& column, int64_t count, int64_t width, int64_t step) {
  const int64_t pixel_step = taps.channels * step;
  for (; count > 0; --count, pixel -= pixel_step) {
    const int64_t up = std::min(taps.rows - 1, row), left = std::min(taps.columns - 1, column);
    convert_pixel<T, true, WIDTH>(taps, pixel, step, width * pixel_step, up, left);
    if (--column < 0) {
      column = width - 1;
      --row;
    }
  }
}

// Invert the events from `first_event` on that fit into WIDTH vectors. Pixels are transposed soon before they are
// solved, and back soon after; in stretches long enough for the processor to fetch memory ahead of its use.
template <typename T, int WIDTH>
void invert_events(const Tiled<T>& work, int64_t first_event, T* tile) {
  constexpr int64_t group = 2048 / sizeof(T), step = WIDTH * LANES<T>;
  const int64_t pixels = work.height * work.width;
  T* pixel = tile;
  int64_t row = 0, column = 0;
  for (int64_t start = 0; start < pixels; start += group) {
    const int64_t stop = std::min(pixels, start + group);
    load_events<T, WIDTH>(work, work.bias, first_event, start, stop, tile);
    solve_pixels<T, WIDTH>(work.second, pixel, row, column, stop - start, work.width, step);
  }
  pixel -= step;
  row = column = 0;
  for (int64_t start = 0; start < pixels; start += group) {
    const int64_t stop = std::min(pixels, start + group);
    solve_pixels<T, WIDTH>(work.first, pixel, row, column, stop - start, work.width, -step);
    store_events<T, WIDTH>(work, nullptr, first_event, pixels - stop, pixels - start, tile, work.output);
  }
}

// Apply both convolutions to these events: w1 from the first pixel on, w2 from the last.
template <typename T, int WIDTH>
void apply_events(const Tiled<T>& work, int64_t first_event, T* tile) {
  constexpr int64_t group = 2048 / sizeof(T), step = WIDTH * LANES<T>;
  const int64_t pixels = work.height * work.width;
  const int64_t ahead = (work.first.rows - 1) * work.width + work.first.columns - 1;  // what w1 reads beyond a pixel
  T* pixel = tile + (work.channels - 1) * step;
  int64_t row = work.height - 1, column = work.width - 1, loaded = 0;
  for (int64_t start = 0; start < pixels; start += group) {
    const int64_t stop = std::min(pixels, start + group), end = std::min(pixels, stop + ahead);
    load_events<T, WIDTH>(work, nullptr, first_event, loaded, end, tile);
    loaded = end;
    apply_pixels<T, WIDTH>(work.first, pixel, row, column, stop - start, work.width, -step);
    if (work.between != nullptr) store_events<T, WIDTH>(work, nullptr, first_event, start, stop, tile, work.between);
  }
  pixel = tile + (pixels - 1) * work.channels * step;
  row = work.height - 1;
  column = work.width - 1;
  for (int64_t start = 0; start < pixels; start += group) {
    const int64_t stop = std::min(pixels, start + group);
    apply_pixels<T, WIDTH>(work.second, pixel, row, column, stop - start, work.width, step);
    store_events<T, WIDTH>(work, work.bias, first_event, pixels - stop, pixels - start, tile, work.output);
  }
}
