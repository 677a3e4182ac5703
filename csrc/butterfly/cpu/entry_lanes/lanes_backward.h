// Backward pass of a staged butterfly: gradients of the samples, and of the matrices in packed order.
//
// Included once for each instruction set, in a separate namespace: no include guard. A tile has S samples; every
// vector is stored side by side for all of them.

constexpr int S = SAMPLES_BACK;

template <class T>
void load_tile(const Stage& stage, const T* x, int64_t dim, int samples, T* tile) {
  constexpr int L = LANES<T>;
  for (int s = 0; s < S; ++s) {
    for (int64_t v = 0; v < stage.vectors; ++v) {
      store(tile + (v * S + s) * L, s < samples ? load(x + s * dim + stage.places[v]) : V<T>{});
    }
  }
}

template <class T>
void store_tile(const Stage& stage, const T* tile, int64_t dim, int samples, T* x) {
  constexpr int L = LANES<T>;
  for (int s = 0; s < samples; ++s) {
    for (int64_t v = 0; v < stage.vectors; ++v) store(x + s * dim + stage.places[v], load(tile + (v * S + s) * L));
  }
}

// Transpose vectors, or transpose them back.
template <class T>
void turn_tile(const Sweep& turn, bool back, const T* from, T* to) {
  constexpr int L = LANES<T>;
  const std::vector<int64_t>& sources = back ? turn.to_rows : turn.from_rows;
  const std::vector<int64_t>& targets = back ? turn.from_rows : turn.to_rows;
  for (const Sweep::Group& group : turn.groups) {
    for (int s = 0; s < S; ++s) {
      const T* source = from + (back ? group.to : group.from) * S + s * L;
      T* target = to + (back ? group.from : group.to) * S + s * L;
      V<T> x[L];
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) x[i] = load(source + sources[i] * S);
      transpose<T>(x);
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) store(target + targets[i] * S, x[i]);
    }
  }
}

template <class T>
void apply_level(const Sweep& level, const T* packed, const T* from, T* to) {
  constexpr int L = LANES<T>;
  const int64_t other = level.from_rows[1] * S;
  for (const Sweep::Group& group : level.groups) {
    const V<T>* m = reinterpret_cast<const V<T>*>(packed + group.packed);
    const V<T> a = m[0], b = m[1], c = m[2], d = m[3];
    const T* x = from + group.from * S;
    T* y = to + group.from * S;
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) {
      const V<T> p = load(x + s * L), q = load(x + other + s * L);
      store(y + s * L, a * p + b * q);
      store(y + other + s * L, c * p + d * q);
    }
  }
}

// `tile` holds the input of the level, `grads` the gradient of its output and then of its input; the sums over the
// samples of the gradients of the matrices are added to `sums`.
template <class T>
void level_back(const Sweep& level, const T* packed, const T* tile, T* grads, T* sums) {
  constexpr int L = LANES<T>;
  const int64_t other = level.from_rows[1] * S;
  for (const Sweep::Group& group : level.groups) {
    const V<T>* m = reinterpret_cast<const V<T>*>(packed + group.packed);
    V<T>* const sum = reinterpret_cast<V<T>*>(sums + group.packed);
    const V<T> a = m[0], b = m[1], c = m[2], d = m[3];
    const T* x = tile + group.from * S;
    T* g = grads + group.from * S;
    V<T> e = {}, f = {}, h = {}, i = {};
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) {
      const V<T> p = load(x + s * L), q = load(x + other + s * L);
      const V<T> u = load(g + s * L), v = load(g + other + s * L);
      e = s ? e + u * p : u * p;
      f = s ? f + u * q : u * q;
      h = s ? h + v * p : v * p;
      i = s ? i + v * q : v * q;
      store(g + s * L, a * u + c * v);
      store(g + other + s * L, b * u + d * v);
    }
    sum[0] += e;
    sum[1] += f;
    sum[2] += h;
    sum[3] += i;
  }
}

// Backward pass of one stage for all samples of a chunk: the input of the stage is `x`, and `grad` the gradient
// of its output and then of its input.
template <class T>
void stage_back(const Stage& stage, int64_t dim, int64_t samples, bool begins, const T* packed, const T* x, T* grad,
                T* sums, T* scratch) {
  const int64_t size = stage.vectors * LANES<T> * S, count = int64_t(stage.steps.size());
  // The input of every level, the gradient, and a tile for it, or an input, before it is transposed.
  T *grads = scratch, *waiting = grads + size, *inputs = waiting + size, *own = inputs + MOST_LEVELS * size;
  const T* matrices = packed + stage.packed;
  T* sum = sums + stage.packed;
  T* input[2 * MOST_LEVELS + 2];
  int64_t used = 0, last = 0;
  for (int64_t i = 0; i < count; ++i) {
    const bool level = stage.steps[i].levels > 0;
    input[i] = level ? inputs + used++ * size : waiting;
    if (level) last = i;
  }
  for (const int64_t tile : stage.tiles) {
    std::fill(own, own + stage.tile_packed, T(0));
    for (int64_t first = 0; first < samples; first += S) {
      const int rest = int(std::min<int64_t>(S, samples - first));
      load_tile(stage, x + first * dim + tile, dim, rest, input[0]);
      for (int64_t i = 0; i < last; ++i) {
        const Sweep& step = stage.steps[i];
        if (step.levels) apply_level(step, matrices, input[i], input[i + 1]);
        else turn_tile(step, false, input[i], input[i + 1]);
      }
      T *now = grads, *other = waiting;
      load_tile(stage, grad + first * dim + tile, dim, rest, now);
      for (int64_t i = count - 1; i >= 0; --i) {
        const Sweep& step = stage.steps[i];
        if (step.levels) {
          level_back(step, matrices, input[i], now, own);
        } else {
          turn_tile(step, true, now, other);
          std::swap(now, other);
        }
      }
      store_tile(stage, now, dim, rest, grad + first * dim + tile);
    }
    if (begins) std::copy(own, own + stage.tile_packed, sum);
    else std::transform(own, own + stage.tile_packed, sum, sum, std::plus<>());
    matrices += stage.tile_packed;
    sum += stage.tile_packed;
  }
}

// The gradients of the matrices, summed over the samples, are written to `sums` in packed order: first over S samples,
// then over those of a chunk, then over the chunks, so that no sum is long. `between` has room for the
// outputs of all stages but the last on a chunk.
template <class T>
void staged_back(const StagedButterfly& staged, const T* packed, int64_t samples, int64_t chunk, const T* x,
                 const T* dy, T* dx, T* sums, T* between, T* scratch) {
  const int64_t dim = staged.butterfly.dim, pitch = chunk * dim;
  const std::vector<Stage>& stages = staged.stages;
  for (int64_t first = 0; first < samples; first += chunk) {
    const int64_t count = std::min(chunk, samples - first);
    std::memcpy(dx + first * dim, dy + first * dim, size_t(count * dim) * sizeof(T));  // see apply_staged
    for (size_t begin = 0, end; begin < stages.size(); begin = end) {  // those of one part
      for (end = begin + 1; end < stages.size() && !stages[end].first; ++end) {}
      const auto input = [&](size_t i) { return i == begin ? x + first * dim : between + (i - begin - 1) * pitch; };
      for (size_t i = begin; i + 1 < end; ++i) {
        apply_stage(stages[i], dim, count, packed, input(i), between + (i - begin) * pitch, scratch);
      }
      for (size_t i = end; i-- > begin;) {
        stage_back(stages[i], dim, count, first == 0, packed, input(i), dx + first * dim, sums, scratch);
      }
    }
  }
}
