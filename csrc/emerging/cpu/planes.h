// Both masked convolutions of an Emerging convolution, vectorised over the pixels of an event.
//
// Included after emerging/cpu/events.h by simd/each.h: no include guard.
//
// A plane holds one channel of an event, row after row, with `columns` - 1 zeros behind each row and margins before the
// first and behind the last: a tap is then one distance for every pixel, and none needs bounds of its own. Pixels
// are computed in the order of memory, those between the rows as well, which are cleared afterwards. Where rows are so
// short that this wastes much, a copy of the planes for each column of taps takes the place of the zeros.

// Vectors of pixels that are computed together: with LARGEST_BLOCK sums for each they fill the registers.
constexpr int APPLIED = INVERTBENCH_BYTES == 64 ? 4 : 2;

// One block of output channels at `WIDTH` vectors of pixels from `source` and `target` on.
template <typename T, int OUTPUTS, int WIDTH>
void apply_block(const PlaneBlock<T>& block, const T* source, T* target, int64_t plane) {
  Vector<T> sums[OUTPUTS][WIDTH] = {};
  const T* weights = block.weights.data();
  for (const int64_t distance : block.distances) {
    Vector<T> values[WIDTH];
    INVERTBENCH_UNROLL
    for (int v = 0; v < WIDTH; ++v) values[v] = reinterpret_cast<const Vector<T>*>(source + distance)[v];
    INVERTBENCH_UNROLL
    for (int o = 0; o < OUTPUTS; ++o) {
      INVERTBENCH_UNROLL
      for (int v = 0; v < WIDTH; ++v) sums[o][v] += weights[o] * values[v];
    }
    weights += OUTPUTS;
  }
  INVERTBENCH_UNROLL
  for (int o = 0; o < OUTPUTS; ++o) {
    INVERTBENCH_UNROLL
    for (int v = 0; v < WIDTH; ++v) reinterpret_cast<Vector<T>*>(target + (block.first + o) * plane)[v] = sums[o][v];
  }
}

template <typename T, int OUTPUTS>
void apply_outputs(
    const PlaneBlock<T>& block, const T* source, T* target, int64_t plane, int64_t vectors) {
  constexpr int64_t lanes = LANES<T>;
  int64_t at = 0;
  for (; at + APPLIED <= vectors; at += APPLIED) {
    apply_block<T, OUTPUTS, APPLIED>(block, source + at * lanes, target + at * lanes, plane);
  }
  for (; at + 2 <= vectors; at += 2) {
    apply_block<T, OUTPUTS, 2>(block, source + at * lanes, target + at * lanes, plane);
  }
  if (at < vectors) apply_block<T, OUTPUTS, 1>(block, source + at * lanes, target + at * lanes, plane);
}

// Apply one convolution to all planes; `source` and `target` are the first pixels of their first planes.
template <typename T>
void apply_taps(
    const std::vector<PlaneBlock<T>>& blocks, const T* source, T* target, int64_t plane, int64_t pixels) {
  static_assert(LARGEST_BLOCK == 6);
  const int64_t vectors = (pixels + LANES<T> - 1) / LANES<T>;
  for (const PlaneBlock<T>& block : blocks) {
    switch (block.size) {
      case 1: apply_outputs<T, 1>(block, source, target, plane, vectors); break;
      case 2: apply_outputs<T, 2>(block, source, target, plane, vectors); break;
      case 3: apply_outputs<T, 3>(block, source, target, plane, vectors); break;
      case 4: apply_outputs<T, 4>(block, source, target, plane, vectors); break;
      case 5: apply_outputs<T, 5>(block, source, target, plane, vectors); break;
      default: apply_outputs<T, 6>(block, source, target, plane, vectors);
    }
  }
}

// Write copies 1, 2, ... of one plane: each pixel's neighbour to the right or, `turned`, to the left; zero beyond the
// row.
template <typename T>
void copy_neighbours(const Planes<T>& work, T* plane, bool turned) {
  const int64_t width = work.width;
  for (int64_t j = 1; j < work.copies; ++j) {
    T* const copy = plane + j * work.channels * work.plane;
    std::copy(plane + (turned ? 0 : j), plane + work.pixels - (turned ? j : 0), copy + (turned ? j : 0));
    T* end = copy + (turned ? 0 : width - j);
    for (int64_t r = 0; r < work.height; ++r, end += width) std::fill(end, end + j, T(0));
  }
}

// Apply both convolutions to one event, in two sets of planes whose margins are zero.
template <typename T>
void apply_event(const Planes<T>& work, int64_t event, T* planes) {
  // Without gaps a plane is one long row.
  const int64_t rows = work.copies > 1 ? 1 : work.height, width = work.height * work.width / rows;
  const int64_t start = event * work.channels * rows * width, gap = work.stride - work.width;
  T* const first = planes + work.margin;
  T* const second = first + work.set();
  for (int64_t channel = 0; channel < work.channels; ++channel) {
    T* const plane = first + channel * work.plane;
    const T* source = work.input + start + channel * rows * width;
    for (int64_t r = 0; r < rows; ++r, source += width) {
      T* const row = plane + r * work.stride;
      std::copy(source, source + width, row);
      std::fill(row + width, row + width + gap, T(0));
    }
    std::fill(plane + work.pixels, plane + rounded(work.pixels, MOST_LANES<T>), T(0));  // of the event before
    copy_neighbours(work, plane, false);
  }
  apply_taps(work.first, first, second, work.plane, work.pixels);
  for (int64_t channel = 0; channel < work.channels; ++channel) {
    T* const plane = second + channel * work.plane;
    for (int64_t r = 0; r < rows; ++r) {
      T* const row = plane + r * work.stride;
      std::fill(row + width, row + width + gap, T(0));
      if (work.between != nullptr) {
        std::copy(row, row + width, work.between + start + (channel * rows + r) * width);
      }
    }
    copy_neighbours(work, plane, true);
  }
  apply_taps(work.second, second, first, work.plane, work.pixels);
  for (int64_t channel = 0; channel < work.channels; ++channel) {
    const T offset = work.bias == nullptr ? T(0) : work.bias[channel];
    T* target = work.output + start + channel * rows * width;
    for (int64_t r = 0; r < rows; ++r, target += width) {
      const T* const row = first + channel * work.plane + r * work.stride;
      for (int64_t s = 0; s < width; ++s) target[s] = row[s] + offset;
    }
  }
}
