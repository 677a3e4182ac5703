// Backward pass of a staged butterfly: gradients of the samples, and of the matrices in packed order.
//
// Included once for each instruction set, in a separate namespace: no include guard. S samples are processed
// together; in scratch memory every vector is stored side by side for all of them.

// Memory of S samples: entry `position` of sample s is base[position * scale + s * pitch].
template <class T>
struct Samples {
  T* base;
  int64_t scale, pitch;
  INVERTBENCH_INLINE T* at(int64_t position, int s) const { return base + position * scale + s * pitch; }
};

template <int E>
INVERTBENCH_INLINE void scale_rows(const std::vector<int64_t>& rows, int64_t scale, int64_t (&scaled)[E]) {
  for (int e = 0; e < E; ++e) scaled[e] = rows[e] * scale;
}

// Transpose vectors, or transpose them back.
template <int S, class T>
void turn(const Sweep& step, bool back, Samples<const T> from, Samples<T> to) {
  constexpr int L = LANES<T>;
  int64_t from_rows[L], to_rows[L];
  scale_rows(back ? step.to_rows : step.from_rows, from.scale, from_rows);
  scale_rows(back ? step.from_rows : step.to_rows, to.scale, to_rows);
  for (const Sweep::Group& group : step.groups) {
    for (int s = 0; s < S; ++s) {
      const T* x = from.at(back ? group.to : group.from, s);
      T* y = to.at(back ? group.from : group.to, s);
      V<T> v[L];
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) v[i] = load(x + from_rows[i]);
      transpose<T>(v);
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) store(y + to_rows[i], v[i]);
    }
  }
}

// C levels of a step on 2^C vectors; the matrices of their pairs follow each other level by level.
template <int C, bool UP, class T>
struct StepLevels {
  static constexpr int E = 1 << C, H = E / 2, PAIRS = C * H;
  const V<T>* matrices[PAIRS];

  INVERTBENCH_INLINE StepLevels(const T* packed, const int64_t* offsets) {
    for (int i = 0; i < PAIRS; ++i) matrices[i] = reinterpret_cast<const V<T>*>(packed + offsets[i]);
  }

  // The rows of pair k of level i.
  static constexpr int bit(int i) { return 1 << (UP ? i : C - 1 - i); }
  static constexpr int first(int i, int k) { return bit(i) == 1 ? 2 * k : k; }
  static constexpr int second(int i, int k) { return first(i, k) | bit(i); }

  // From the input of the first level, x[0], the inputs of the next `count` ones, or the output.
  INVERTBENCH_INLINE void apply(V<T> (*x)[E], int count) const {
#pragma GCC unroll 2
    for (int i = 0; i < count; ++i) {
#pragma GCC unroll 2
      for (int k = 0; k < H; ++k) {
        const V<T>* m = matrices[i * H + k];
        const V<T> p = x[i][first(i, k)], q = x[i][second(i, k)];
        x[i + 1][first(i, k)] = m[0] * p + m[1] * q;
        x[i + 1][second(i, k)] = m[2] * p + m[3] * q;
      }
    }
  }
};

template <int S, int C, bool UP, class T>
void apply_step(const Sweep& step, const T* packed, Samples<const T> from, Samples<T> to) {
  using Levels = StepLevels<C, UP, T>;
  int64_t from_rows[Levels::E], to_rows[Levels::E];
  scale_rows(step.from_rows, from.scale, from_rows);
  scale_rows(step.to_rows, to.scale, to_rows);
  const int64_t* offsets = step.pairs.data();
  for (const Sweep::Group& group : step.groups) {
    const Levels levels(packed, offsets);
    offsets += Levels::PAIRS;
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) {
      const T* x = from.at(group.from, s);
      T* y = to.at(group.to, s);
      V<T> values[C + 1][Levels::E];
#pragma GCC unroll 4
      for (int e = 0; e < Levels::E; ++e) values[0][e] = load(x + from_rows[e]);
      levels.apply(values, C);
#pragma GCC unroll 4
      for (int e = 0; e < Levels::E; ++e) store(y + to_rows[e], values[C][e]);
    }
  }
}

// The input of the step is `input`. The sums over the samples of the gradients of the matrices are added to `sums`.
template <int S, int C, bool UP, class T>
void step_back(const Sweep& step, const T* packed, Samples<const T> input, Samples<const T> dy, Samples<T> dx,
               T* sums) {
  using Levels = StepLevels<C, UP, T>;
  constexpr int E = Levels::E, H = Levels::H;
  int64_t input_rows[E], dy_rows[E], dx_rows[E];
  scale_rows(step.from_rows, input.scale, input_rows);
  scale_rows(step.to_rows, dy.scale, dy_rows);
  scale_rows(step.from_rows, dx.scale, dx_rows);
  const int64_t* offsets = step.pairs.data();
  for (const Sweep::Group& group : step.groups) {
    const Levels levels(packed, offsets);
    V<T> sum[Levels::PAIRS][4] = {};
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) {
      const T *x = input.at(group.from, s), *from = dy.at(group.to, s);
      T* to = dx.at(group.from, s);
      V<T> values[C + 1][E], grad[E];
#pragma GCC unroll 4
      for (int e = 0; e < E; ++e) values[0][e] = load(x + input_rows[e]);
      levels.apply(values, C - 1);
#pragma GCC unroll 4
      for (int e = 0; e < E; ++e) grad[e] = load(from + dy_rows[e]);
#pragma GCC unroll 2
      for (int i = C - 1; i >= 0; --i) {
#pragma GCC unroll 2
        for (int k = 0; k < H; ++k) {
          const int first = Levels::first(i, k), second = Levels::second(i, k);
          const V<T>* m = levels.matrices[i * H + k];
          const V<T> p = values[i][first], q = values[i][second], u = grad[first], v = grad[second];
          V<T>* const total = sum[i * H + k];
          total[0] = s ? total[0] + u * p : u * p;
          total[1] = s ? total[1] + u * q : u * q;
          total[2] = s ? total[2] + v * p : v * p;
          total[3] = s ? total[3] + v * q : v * q;
          grad[first] = m[0] * u + m[2] * v;
          grad[second] = m[1] * u + m[3] * v;
        }
      }
#pragma GCC unroll 4
      for (int e = 0; e < E; ++e) store(to + dx_rows[e], grad[e]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < Levels::PAIRS; ++i) {
      V<T>* const total = reinterpret_cast<V<T>*>(sums + offsets[i]);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) total[j] += sum[i][j];
    }
    offsets += Levels::PAIRS;
  }
}

// A tile of a stage on S samples, back: `x` is the input of the stage, `dy` the gradient of its output, `dx` receives
// that of its input.
template <int S, class T>
void tile_back(const Stage& stage, const T* matrices, Samples<const T> x, Samples<const T> dy, Samples<T> dx, T* sums,
               T* scratch) {
  const int64_t size = stage.vectors * LANES<T> * S, count = int64_t(stage.steps.size());
  const auto tile = [](T* base) { return Samples<T>{base, S, LANES<T>}; };
  const auto read = [](Samples<T> memory) { return Samples<const T>{memory.base, memory.scale, memory.pitch}; };
  T *now = scratch, *other = now + size, *free = other + size;
  Samples<T> tiles[2 * MOST_LEVELS + 2];  // the inputs of all steps but the first
  int64_t last = 0;
  for (int64_t i = 0; i < count; ++i) {
    const bool level = stage.steps[i].levels > 0;
    tiles[i] = tile(level ? free : other);
    if (level && i > 0) free += size;
    if (level) last = i;
  }
  const auto input = [&](int64_t i) { return i == 0 ? x : read(tiles[i]); };
  for (int64_t i = 0; i < last; ++i) {
    const Sweep& step = stage.steps[i];
    if (step.levels == 0) turn<S>(step, false, input(i), tiles[i + 1]);
    else if (step.levels == 1) apply_step<S, 1, false>(step, matrices, input(i), tiles[i + 1]);
    else if (step.up) apply_step<S, 2, true>(step, matrices, input(i), tiles[i + 1]);
    else apply_step<S, 2, false>(step, matrices, input(i), tiles[i + 1]);
  }
  Samples<const T> from = dy;
  for (int64_t i = count - 1; i >= 0; --i) {
    const Sweep& step = stage.steps[i];
    if (step.levels == 0 && from.base == now) std::swap(now, other);
    const Samples<T> to = i == 0 ? dx : tile(now);
    if (step.levels == 0) turn<S>(step, true, from, to);
    else if (step.levels == 1) step_back<S, 1, false>(step, matrices, input(i), from, to, sums);
    else if (step.up) step_back<S, 2, true>(step, matrices, input(i), from, to, sums);
    else step_back<S, 2, false>(step, matrices, input(i), from, to, sums);
    from = read(to);
  }
}

// Backward pass of one stage for all samples of a chunk.
template <class T>
void stage_back(const Stage& stage, int64_t dim, int64_t samples, bool begins, const T* packed, const T* x,
                const T* dy, T* dx, T* sums, T* scratch) {
  const T* matrices = packed + stage.packed;
  T *sum = sums + stage.packed, *own = scratch + (2 + MOST_LEVELS) * stage.vectors * LANES<T> * SAMPLES_BACK;
  for (const int64_t tile : stage.tiles) {
    std::fill(own, own + stage.tile_packed, T(0));
    for (int64_t first = 0; first < samples;) {
      const int64_t at = first * dim + tile;
      const Samples<const T> input{x + at, 1, dim}, from{dy + at, 1, dim};
      const Samples<T> to{dx + at, 1, dim};
      const int64_t rest = samples - first;
      if (rest >= SAMPLES_BACK) tile_back<SAMPLES_BACK>(stage, matrices, input, from, to, own, scratch);
      else tile_back<1>(stage, matrices, input, from, to, own, scratch);
      first += rest >= SAMPLES_BACK ? SAMPLES_BACK : 1;
    }
    if (begins) std::copy(own, own + stage.tile_packed, sum);
    else std::transform(own, own + stage.tile_packed, sum, sum, std::plus<>());
    matrices += stage.tile_packed;
    sum += stage.tile_packed;
  }
}

// The gradients of the matrices, summed over the samples, are written to `sums` in packed order: first over
// SAMPLES_BACK samples, then over those of a chunk, then over the chunks, so that no sum is long. `between` has room
// for the outputs of all stages but the last on a chunk.
template <class T>
void staged_back(const StagedButterfly& staged, const T* packed, int64_t samples, int64_t chunk, const T* x,
                 const T* dy, T* dx, T* sums, T* between, T* scratch) {
  const int64_t dim = staged.butterfly.dim, pitch = chunk * dim;
  const std::vector<Stage>& stages = staged.stages;
  for (int64_t first = 0; first < samples; first += chunk) {
    const int64_t count = std::min(chunk, samples - first), at = first * dim;
    for (size_t begin = 0, end; begin < stages.size(); begin = end) {  // those of one part
      for (end = begin + 1; end < stages.size() && !stages[end].first; ++end) {}
      const auto input = [&](size_t i) { return i == begin ? x + at : between + (i - begin - 1) * pitch; };
      for (size_t i = begin; i + 1 < end; ++i) {
        apply_stage(stages[i], dim, count, packed, input(i), between + (i - begin) * pitch, scratch);
      }
      const T* from = source(stages[end - 1], dim, count, dy + at, dx + at);
      for (size_t i = end; i-- > begin; from = dx + at) {
        stage_back(stages[i], dim, count, first == 0, packed, input(i), from, dx + at, sums, scratch);
      }
    }
  }
}
