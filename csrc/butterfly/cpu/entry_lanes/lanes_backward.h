// Backward pass of a staged butterfly: gradients of the samples, and of the matrices in packed order.
//
// Included by simd/each.h, in the namespace of an instruction set: no include guard. Up to SAMPLES_BACK samples
// are processed together; in scratch memory every vector is stored side by side for all of them.

// Memory of samples: entry `position` of sample s is base[position * scale + s * pitch].
template <class T>
struct Samples {
  T* base;
  int64_t scale, pitch;
  INVERTBENCH_INLINE T* at(int64_t position) const { return base + position * scale; }  // of the first sample
};

// C levels of a step on the E vectors of a group: the inputs of all levels, and the gradients of their coefficients.
template <int C_, bool UP, class T>
struct WideStep {
  static constexpr int C = C_, E = 1 << C, H = E / 2, COUNT = C * H, VECTORS = 4;  // coefficients, in vectors
  const V<T>* matrices[COUNT];

  INVERTBENCH_INLINE WideStep(const Sweep&, const T* packed, const int64_t* offsets) {
    for (int i = 0; i < COUNT; ++i) matrices[i] = reinterpret_cast<const V<T>*>(packed + offsets[i]);
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

  // From the gradient of the output that of the input; those of the coefficients are added to `sum`.
  INVERTBENCH_INLINE void back(const V<T> (*x)[E], V<T> (&grad)[E], V<T> (*sum)[VECTORS]) const {
#pragma GCC unroll 2
    for (int i = C - 1; i >= 0; --i) {
#pragma GCC unroll 2
      for (int k = 0; k < H; ++k) {
        const V<T>* m = matrices[i * H + k];
        const V<T> p = x[i][first(i, k)], q = x[i][second(i, k)], u = grad[first(i, k)], v = grad[second(i, k)];
        V<T>* const total = sum[i * H + k];
        total[0] += u * p;
        total[1] += u * q;
        total[2] += v * p;
        total[3] += v * q;
        grad[first(i, k)] = m[0] * u + m[2] * v;
        grad[second(i, k)] = m[1] * u + m[3] * v;
      }
    }
  }
};

// The same for narrow levels: the transpose of y = own x + other P x, with the symmetric permutation P of partners, is
// own dy + P (other dy).
template <int C_, int W, class T>
struct NarrowStep {
  static constexpr int C = C_, E = W, COUNT = C * W, VECTORS = 2;
  const V<T>* matrices[COUNT];
  int shifts[C];

  INVERTBENCH_INLINE NarrowStep(const Sweep& step, const T* packed, const int64_t* offsets) {
    for (int i = 0; i < COUNT; ++i) matrices[i] = reinterpret_cast<const V<T>*>(packed + offsets[i]);
    for (int i = 0; i < C; ++i) shifts[i] = step.shifts[i];
  }

  static INVERTBENCH_INLINE void partners_of(const V<T> (&x)[W], int shift, V<T> (&found)[W]) {
    with_stride<W, T>(shift, [&](auto stride) __attribute__((always_inline)) { partners<W, stride, T>(x, found); });
  }

  INVERTBENCH_INLINE void apply(V<T> (*x)[E], int count) const {
#pragma GCC unroll 2
    for (int i = 0; i < count; ++i) {
      V<T> others[W];
      partners_of(x[i], shifts[i], others);
#pragma GCC unroll 16
      for (int j = 0; j < W; ++j) x[i + 1][j] = matrices[i * W + j][0] * x[i][j] + matrices[i * W + j][1] * others[j];
    }
  }

  INVERTBENCH_INLINE void back(const V<T> (*x)[E], V<T> (&grad)[E], V<T> (*sum)[VECTORS]) const {
#pragma GCC unroll 2
    for (int i = C - 1; i >= 0; --i) {
      V<T> others[W], back[W];
      partners_of(x[i], shifts[i], others);
#pragma GCC unroll 16
      for (int j = 0; j < W; ++j) {
        V<T>* const total = sum[i * W + j];
        total[0] += grad[j] * x[i][j];
        total[1] += grad[j] * others[j];
        back[j] = matrices[i * W + j][1] * grad[j];
      }
      partners_of(back, shifts[i], others);
#pragma GCC unroll 16
      for (int j = 0; j < W; ++j) grad[j] = matrices[i * W + j][0] * grad[j] + others[j];
    }
  }
};

template <class Levels, class T>
void apply_step(const Sweep& step, int samples, const T* packed, Samples<const T> from, Samples<T> to) {
  constexpr int E = Levels::E;
  const Rows<E, T> from_rows(step.from_rows, from.scale), to_rows(step.to_rows, to.scale);
  const int64_t* offsets = step.packed.data();
  for (const Sweep::Group& group : step.groups) {
    const Levels levels(step, packed, offsets);
    offsets += Levels::COUNT;
    const T* x = from.at(group.from);
    T* y = to.at(group.to);
    for (int s = 0; s < samples; ++s, x += from.pitch, y += to.pitch) {
      V<T> values[Levels::C + 1][E];
#pragma GCC unroll 16
      for (int e = 0; e < E; ++e) values[0][e] = load(from_rows.at(x, e));
      levels.apply(values, Levels::C);
#pragma GCC unroll 16
      for (int e = 0; e < E; ++e) store(to_rows.at(y, e), values[Levels::C][e]);
    }
  }
}

// The input of the step is `input`. The sums over the samples of the gradients of the matrices are added to `sums`.
template <class Levels, class T>
void step_back(const Sweep& step, int samples, const T* packed, Samples<const T> input, Samples<const T> dy,
               Samples<T> dx, T* sums) {
  constexpr int C = Levels::C, E = Levels::E;
  const Rows<E, T> input_rows(step.from_rows, input.scale), dy_rows(step.to_rows, dy.scale);
  const Rows<E, T> dx_rows(step.from_rows, dx.scale);
  const int64_t* offsets = step.packed.data();
  for (const Sweep::Group& group : step.groups) {
    const Levels levels(step, packed, offsets);
    V<T> sum[Levels::COUNT][Levels::VECTORS] = {};
    const T *x = input.at(group.from), *from = dy.at(group.to);
    T* to = dx.at(group.from);
    for (int s = 0; s < samples; ++s, x += input.pitch, from += dy.pitch, to += dx.pitch) {
      V<T> values[C + 1][E], grad[E];
#pragma GCC unroll 16
      for (int e = 0; e < E; ++e) values[0][e] = load(input_rows.at(x, e));
      levels.apply(values, C - 1);
#pragma GCC unroll 16
      for (int e = 0; e < E; ++e) grad[e] = load(dy_rows.at(from, e));
      levels.back(values, grad, sum);
#pragma GCC unroll 16
      for (int e = 0; e < E; ++e) store(dx_rows.at(to, e), grad[e]);
    }
#pragma GCC unroll 32
    for (int i = 0; i < Levels::COUNT; ++i) {
      V<T>* const total = reinterpret_cast<V<T>*>(sums + offsets[i]);
#pragma GCC unroll 4
      for (int j = 0; j < Levels::VECTORS; ++j) total[j] += sum[i][j];
    }
    offsets += Levels::COUNT;
  }
}

// Call body with the type of the levels of a step.
template <class T, class Body>
void with_levels(const Sweep& step, const Body& body) {
  if (!step.shifts.empty()) {
    return with_block(step, [&](auto block) {
      if (step.levels == 1) body(std::type_identity<NarrowStep<1, block, T>>());
      else body(std::type_identity<NarrowStep<2, block, T>>());
    });
  }
  if (step.levels == 1) body(std::type_identity<WideStep<1, false, T>>());
  else if (step.up) body(std::type_identity<WideStep<2, true, T>>());
  else body(std::type_identity<WideStep<2, false, T>>());
}

// A tile of a stage, back: `x` is the input of the stage; `gradient` is that of its output, then of its input.
template <class T>
void tile_back(const Stage& stage, int samples, const T* matrices, Samples<const T> x, Samples<T> gradient, T* sums,
               T* scratch) {
  const int64_t size = stage.vectors * LANES<T> * samples, count = int64_t(stage.steps.size());
  const auto tile = [&](int64_t i) { return Samples<T>{scratch + i * size, samples, LANES<T>}; };
  const auto read = [](Samples<T> memory) { return Samples<const T>{memory.base, memory.scale, memory.pitch}; };
  const auto input = [&](int64_t i) { return i == 0 ? x : read(tile(i)); };
  for (int64_t i = 0; i + 1 < count; ++i) {
    with_levels<T>(stage.steps[i], [&]<class Levels>(std::type_identity<Levels>) {
      apply_step<Levels>(stage.steps[i], samples, matrices, input(i), tile(i + 1));
    });
  }
  for (int64_t i = count - 1; i >= 0; --i) {
    with_levels<T>(stage.steps[i], [&]<class Levels>(std::type_identity<Levels>) {
      const Samples<T> dy = i == count - 1 ? gradient : tile(0), dx = i == 0 ? gradient : tile(0);
      step_back<Levels>(stage.steps[i], samples, matrices, input(i), read(dy), dx, sums);
    });
  }
}

// Backward pass of one stage: `dx` holds the gradient of its output, then of its input.
template <class T>
void stage_back(const Stage& stage, int64_t dim, int samples, bool begins, const T* packed, const T* x, T* dx,
                T* sums, T* scratch) {
  const T* matrices = packed + stage.packed;
  T* sum = sums + stage.packed;
  for (const int64_t tile : stage.tiles) {
    if (begins) std::fill(sum, sum + stage.tile_packed, T(0));
    tile_back<T>(stage, samples, matrices, {x + tile, 1, dim}, {dx + tile, 1, dim}, sum, scratch);
    matrices += stage.tile_packed;
    sum += stage.tile_packed;
  }
}

// The gradients of the matrices, summed over the samples, SAMPLES_BACK of them first, are written to `sums` in packed
// order. `between` has room for the outputs of all stages but the last on that many.
template <class T>
void staged_back(const StagedButterfly& staged, const T* packed, int64_t samples, const T* x, const T* dy, T* dx,
                 T* sums, T* between, T* scratch) {
  const int64_t dim = staged.butterfly.dim, pitch = SAMPLES_BACK * dim;
  const std::vector<Stage>& stages = staged.stages;
  for (int64_t first = 0; first < samples; first += SAMPLES_BACK) {
    const int count = int(std::min(SAMPLES_BACK, samples - first));
    const int64_t at = first * dim;
    std::copy(dy + at, dy + at + count * dim, dx + at);
    for (size_t begin = 0, end; begin < stages.size(); begin = end) {  // those of one part
      for (end = begin + 1; end < stages.size() && !stages[end].first; ++end) {}
      const auto input = [&](size_t i) { return i == begin ? x + at : between + (i - begin - 1) * pitch; };
      for (size_t i = begin; i + 1 < end; ++i) {
        apply_stage(stages[i], dim, count, packed, input(i), between + (i - begin) * pitch, scratch);
      }
      for (size_t i = end; i-- > begin;) {
        stage_back(stages[i], dim, count, first == 0, packed, input(i), dx + at, sums, scratch);
      }
    }
  }
}
