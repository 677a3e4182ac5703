// A staged butterfly (see butterfly/cpu/entry_lanes/stages.h) on samples, and the packing of its weight.
//
// Included by simd/each.h, in the namespace of an instruction set: no include guard.

template <class T>
void pack_tile(const Stage& stage, int64_t tile, const T* weight, int64_t pitch, T* packed) {
  constexpr int L = LANES<T>;
  const int64_t *const numbers = stage.numbers.data() + tile * int64_t(stage.levels.size()), *at = stage.sources.data();
  T* to = packed + stage.packed + tile * stage.tile_packed;
  for (const Packed& each : stage.order) {
    const T* from = weight + numbers[each.level];
    if (each.run) {
      from += *at++;
      for (int i = 0; i < 4; ++i, from += pitch, to += L) store(to, load(from));
    } else {
      for (int i = 0; i < each.vectors; ++i, at += L, to += L) {
        for (int k = 0; k < L; ++k) to[k] = from[at[k]];
      }
    }
  }
}

// Add the sums over the shares of a gradient in packed order, `packed` numbers each, to one in the weight's order.
template <class T>
void unpack_tile(const Stage& stage, int64_t tile, const T* sums, int64_t shares, int64_t packed, int64_t pitch,
                 T* gradient) {
  constexpr int L = LANES<T>;
  const int64_t *const numbers = stage.numbers.data() + tile * int64_t(stage.levels.size()), *at = stage.sources.data();
  const T* from = sums + stage.packed + tile * stage.tile_packed;
  for (const Packed& each : stage.order) {
    T* to = gradient + numbers[each.level] + (each.run ? *at++ : 0);
    for (int i = 0; i < each.vectors; ++i, from += L) {
      double total[L];
      for (int k = 0; k < L; ++k) total[k] = from[k];
      for (int64_t j = 1; j < shares; ++j) {
        for (int k = 0; k < L; ++k) total[k] += from[j * packed + k];
      }
      if (each.run) {
        V<T> sum;
        for (int k = 0; k < L; ++k) sum[k] = T(total[k]);
        store(to, load(to) + sum);
        to += pitch;
      } else {
        for (int k = 0; k < L; ++k) to[at[k]] += T(total[k]);
        at += L;
      }
    }
  }
}

// The same for one level of matrices that several lanes and tiles share; `pitch` apart are the entries of a matrix.
template <class T>
void unpack_shared(const Stage& stage, int level, const T* sums, int64_t shares, int64_t packed, int64_t pitch,
                   T* gradient) {
  constexpr int L = LANES<T>;
  const int64_t levels = int64_t(stage.levels.size()), first = stage.levels[level].factor.weight;
  std::vector<double> totals(4 * pitch);
  for (int64_t tile = 0; tile < int64_t(stage.tiles.size()); ++tile) {
    const T* from = sums + stage.packed + tile * stage.tile_packed;
    const int64_t* at = stage.sources.data();
    for (const Packed& each : stage.order) {
      for (int i = 0; i < each.vectors; ++i, at += L, from += L) {
        if (each.level != level) continue;
        for (int k = 0; k < L; ++k) {
          double total = 0;
          for (int64_t j = 0; j < shares; ++j) total += from[j * packed + k];
          totals[stage.numbers[tile * levels + level] + at[k]] += total;
        }
      }
    }
  }
  const int64_t count = stage.levels[level].count;
  for (int64_t at = first; at < 4 * pitch; at += pitch) {
    for (int64_t i = at; i < at + count; ++i) gradient[i] += T(totals[i]);
  }
}

// C wide levels on E vectors of each of U samples; bit C - 1 of a vector's index belongs to the largest stride.
template <int U, int E, int C, bool UP, class T>
INVERTBENCH_INLINE void apply_wide(V<T> (&x)[U][E], const T* matrices) {
#pragma GCC unroll 4
  for (int i = 0; i < C; ++i) {
    const int bit = 1 << (UP ? i : C - 1 - i);
#pragma GCC unroll 16
    for (int e = 0; e < E; ++e) {
      if (e & bit) continue;
      const V<T>* m = reinterpret_cast<const V<T>*>(matrices);
      V<T> a = m[0], b = m[1], c = m[2], d = m[3];
      if constexpr (U > 1) {
        INVERTBENCH_KEEP(a);
        INVERTBENCH_KEEP(b);
        INVERTBENCH_KEEP(c);
        INVERTBENCH_KEEP(d);
      }
      matrices += 4 * LANES<T>;
#pragma GCC unroll 4
      for (int u = 0; u < U; ++u) {
        const V<T> p = x[u][e], q = x[u][e | bit];
        x[u][e] = a * p + b * q;
        x[u][e | bit] = c * p + d * q;
      }
    }
  }
}

// The partners of the entries of vector J at a distance of S, in a block of W vectors.
template <int W, int S, int J, class T>
struct Partners {
  static constexpr int L = LANES<T>;

  static constexpr int partner(int lane) {
    const int entry = J * L + lane;
    return entry / S % 2 ? entry - S : entry + S;
  }

  static constexpr bool in(int vector) {
    for (int k = 0; k < L; ++k) {
      if (partner(k) / L == vector) return true;
    }
    return false;
  }

  static constexpr int next(int vector) {  // that has partners
    while (vector < W && !in(vector)) ++vector;
    return vector;
  }

  // Entries picked so far stay, those of vector I come in.
  template <int I, int... K>
  static INVERTBENCH_INLINE V<T> with(V<T> picked, V<T> x, std::integer_sequence<int, K...>) {
    return shuffle<T, (partner(K) / L == I ? L + partner(K) % L : K)...>(picked, x);
  }

  // Entries of vectors I and N; those of others are not picked yet.
  template <int I, int N, int... K>
  static INVERTBENCH_INLINE V<T> first(V<T> x, V<T> y, std::integer_sequence<int, K...>) {
    return shuffle<T, (partner(K) / L == I ? partner(K) % L : partner(K) / L == N ? L + partner(K) % L : 0)...>(x, y);
  }

  static INVERTBENCH_INLINE V<T> of(const V<T> (&x)[W]) {
    using Lanes = std::make_integer_sequence<int, L>;
    constexpr int A = next(0), B = next(A + 1) < W ? next(A + 1) : A, C = next(B + 1), D = C < W ? next(C + 1) : W;
    V<T> picked = first<A, B>(x[A], x[B], Lanes());
    if constexpr (C < W) picked = with<C>(picked, x[C], Lanes());
    if constexpr (D < W) picked = with<D>(picked, x[D], Lanes());
    return picked;
  }
};

template <int W, int S, class T, int... J>
INVERTBENCH_INLINE void partners(const V<T> (&x)[W], V<T> (&found)[W], std::integer_sequence<int, J...>) {
  ((found[J] = Partners<W, S, J, T>::of(x)), ...);
}

template <int W, int S, class T>
INVERTBENCH_INLINE void partners(const V<T> (&x)[W], V<T> (&found)[W]) {
  partners<W, S, T>(x, found, std::make_integer_sequence<int, W>());
}

// Call body with the stride W 2^shift of a narrow level as a constant.
template <int W, class T, class Body>
INVERTBENCH_INLINE void with_stride(int shift, const Body& body) {
  constexpr int L = LANES<T>;
  if constexpr (L > 8) {
    if (shift == 3) return body(std::integral_constant<int, 8 * W>());
  }
  if constexpr (L > 4) {
    if (shift == 2) return body(std::integral_constant<int, 4 * W>());
  }
  if constexpr (L > 2) {
    if (shift == 1) return body(std::integral_constant<int, 2 * W>());
  }
  body(std::integral_constant<int, W>());
}

template <int U, int W, int S, class T>
INVERTBENCH_INLINE void apply_narrow(V<T> (&x)[U][W], const T* matrices) {
  V<T> others[U][W];
#pragma GCC unroll 4
  for (int u = 0; u < U; ++u) partners<W, S, T>(x[u], others[u]);
#pragma GCC unroll 16
  for (int j = 0; j < W; ++j) {
    V<T> own = load(matrices + 2 * j * LANES<T>), other = load(matrices + (2 * j + 1) * LANES<T>);
    if constexpr (U > 1) {
      INVERTBENCH_KEEP(own);
      INVERTBENCH_KEEP(other);
    }
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) x[u][j] = own * x[u][j] + other * others[u][j];
  }
}

// Positions of the E vectors of a group, from its first: those of narrow levels follow each other; row e of wide ones
// is, from 4 on, row 4 and row e - 4 together, which takes fewer registers. Positions are multiplied by `scale`.
template <int E, class T>
struct Rows {
  static constexpr bool WIDE = std::has_single_bit(unsigned(E));
  int64_t low[4] = {}, high = 0;
  explicit INVERTBENCH_INLINE Rows(const std::vector<int64_t>& rows, int64_t scale = 1) {
    low[1] = LANES<T> * scale;
    for (int e = 1; WIDE && e < std::min(E, 4); ++e) low[e] = rows[e] * scale;
    if (WIDE && E > 4) high = rows[4] * scale;
  }
  template <class P>
  INVERTBENCH_INLINE P* at(P* begin, int e) const {
    if (!WIDE) return begin + e * low[1];
    if (e >= 4) begin += high;
    return e % 4 == 0 ? begin : begin + low[e % 4];
  }
};

// The levels of a sweep on E vectors of U samples.
template <int C, bool UP>
struct Wide {
  static constexpr int E = 1 << C, KEPT = E;  // vectors of a sample in registers
  template <int U, class T>
  static INVERTBENCH_INLINE void apply(const Sweep&, V<T> (&x)[U][E], const T* matrices) {
    apply_wide<U, E, C, UP, T>(x, matrices);
  }
};

template <int W>
struct Narrow {
  static constexpr int E = W, KEPT = 2 * W;
  template <int U, class T>
  static INVERTBENCH_INLINE void apply(const Sweep& sweep, V<T> (&x)[U][E], const T* matrices) {
    for (const int shift : sweep.shifts) {
      with_stride<W, T>(shift, [&](auto stride) __attribute__((always_inline)) {
        apply_narrow<U, W, stride, T>(x, matrices);
      });
      matrices += 2 * W * LANES<T>;
    }
  }
};

template <class Levels, int U, int E, class T>
INVERTBENCH_INLINE void sweep_group(const Sweep& sweep, const Rows<E, T>& from_rows, const T* from, int64_t from_pitch,
                                    const Rows<E, T>& to_rows, T* to, int64_t to_pitch, const T* matrices) {
  V<T> x[U][E];
#pragma GCC unroll 4
  for (int u = 0; u < U; ++u) {
#pragma GCC unroll 16
    for (int e = 0; e < E; ++e) x[u][e] = load(from_rows.at(from + u * from_pitch, e));
  }
  Levels::template apply<U, T>(sweep, x, matrices);
#pragma GCC unroll 4
  for (int u = 0; u < U; ++u) {
#pragma GCC unroll 16
    for (int e = 0; e < E; ++e) store(to_rows.at(to + u * to_pitch, e), x[u][e]);
  }
}

template <class Levels, class T>
void run_sweep(const Sweep& sweep, int samples, const T* from, int64_t from_pitch, T* to, int64_t to_pitch,
               const T* matrices) {
  constexpr int E = Levels::E, FREE = (INVERTBENCH_BYTES == 64 ? 32 : 16) - 4;
  constexpr int U = 2 * Levels::KEPT <= FREE ? 2 : 1;  // samples that share each read of the matrices
  const Rows<E, T> from_rows(sweep.from_rows), to_rows(sweep.to_rows);
  for (const Sweep::Group& group : sweep.groups) {
    const T *source = from + group.from, *m = matrices + group.packed;
    T* target = to + group.to;
    int n = 0;
    for (; n + U <= samples; n += U, source += U * from_pitch, target += U * to_pitch) {
      sweep_group<Levels, U>(sweep, from_rows, source, from_pitch, to_rows, target, to_pitch, m);
    }
    if (n < samples) sweep_group<Levels, 1>(sweep, from_rows, source, from_pitch, to_rows, target, to_pitch, m);
  }
}

// Call body with the vectors W of a block of a narrow sweep as a constant.
template <class Body>
void with_block(const Sweep& sweep, const Body& body) {
  switch (sweep.from_rows.size()) {
    case 1: return body(std::integral_constant<int, 1>());
    case 3: return body(std::integral_constant<int, 3>());
    case 5: return body(std::integral_constant<int, 5>());
    default: return body(std::integral_constant<int, 7>());
  }
}

template <class T>
using RunSweep = void (*)(const Sweep&, int, const T*, int64_t, T*, int64_t, const T*);

template <class T>
RunSweep<T> runner(const Sweep& sweep) {
  if (!sweep.shifts.empty()) {
    RunSweep<T> found;
    with_block(sweep, [&](auto block) { found = run_sweep<Narrow<block>, T>; });
    return found;
  }
  if (sweep.levels == 1) return run_sweep<Wide<1, false>, T>;
  if (sweep.levels == 2) return sweep.up ? run_sweep<Wide<2, true>, T> : run_sweep<Wide<2, false>, T>;
  return sweep.up ? run_sweep<Wide<3, true>, T> : run_sweep<Wide<3, false>, T>;
}

// A stage on up to SAMPLES samples, tile by tile. `scratch` has room for a tile.
template <class T>
void apply_stage(const Stage& stage, int64_t dim, int samples, const T* packed, const T* x, T* y, T* scratch) {
  const int64_t pitch = stage.vectors * LANES<T>;
  const T* matrices = packed + stage.packed;
  for (const int64_t tile : stage.tiles) {
    for (const Sweep& sweep : stage.sweeps) {
      const T* from = sweep.from_event ? x + tile : scratch;
      T* to = sweep.to_event ? y + tile : scratch;
      const int64_t from_pitch = sweep.from_event ? dim : pitch, to_pitch = sweep.to_event ? dim : pitch;
      runner<T>(sweep)(sweep, samples, from, from_pitch, to, to_pitch, matrices);
    }
    matrices += stage.tile_packed;
  }
}

// All stages on some samples, then the next ones, so that the output of one stage is in the second cache when the next
// reads it. The first stage reads a copy: a processor prefetches sequential reads, but not the rows of tiles.
template <class T>
void apply_staged(const StagedButterfly& staged, const T* packed, int64_t samples, const T* x, T* y, T* scratch) {
  const int64_t dim = staged.butterfly.dim;
  for (int64_t first = 0; first < samples; first += SAMPLES) {
    const int count = int(std::min(SAMPLES, samples - first));
    const int64_t at = first * dim;
    std::copy(x + at, x + at + count * dim, y + at);
    for (const Stage& stage : staged.stages) apply_stage(stage, dim, count, packed, y + at, y + at, scratch);
  }
}
