// A staged butterfly (see butterfly/cpu/entry_lanes/stages.h) on samples, and the packing of its weight.
//
// Included once for each instruction set, in a separate namespace: no include guard.

template <class T>
void pack_tile(const Stage& stage, int64_t tile, const T* weight, int64_t pitch, T* packed) {
  constexpr int L = LANES<T>;
  const int64_t* const numbers = stage.numbers.data() + tile * int64_t(stage.levels.size());
  T* to = packed + stage.packed + tile * stage.tile_packed;
  for (const PackedPair& pair : stage.pairs) {
    const T* from = weight + numbers[pair.level] + pair.number;
    const int64_t step = stage.levels[pair.level].step;
    for (int j = 0; j < 4; ++j, from += pitch, to += L) {
      if (step == 1) {
        store(to, load(from));
      } else {
        for (int k = 0; k < L; ++k) to[k] = from[k * step];
      }
    }
  }
}

// Add the sums over the shares of a gradient in packed order, `packed` numbers each, to one in the weight's order.
template <class T>
void unpack_tile(const Stage& stage, int64_t tile, const T* sums, int64_t shares, int64_t packed, int64_t pitch,
                 T* gradient) {
  constexpr int L = LANES<T>;
  const int64_t* const numbers = stage.numbers.data() + tile * int64_t(stage.levels.size());
  const T* from = sums + stage.packed + tile * stage.tile_packed;
  for (const PackedPair& pair : stage.pairs) {
    T* to = gradient + numbers[pair.level] + pair.number;
    const int64_t step = stage.levels[pair.level].step;
    for (int j = 0; j < 4; ++j, to += pitch, from += L) {
      double total[L];
      for (int k = 0; k < L; ++k) total[k] = from[k];
      for (int64_t i = 1; i < shares; ++i) {
        for (int k = 0; k < L; ++k) total[k] += from[i * packed + k];
      }
      if (step == 1) {
        V<T> sum;
        for (int k = 0; k < L; ++k) sum[k] = T(total[k]);
        store(to, load(to) + sum);
      } else {
        for (int k = 0; k < L; ++k) to[k * step] += T(total[k]);
      }
    }
  }
}

// The same for one level of matrices that several lanes and tiles share.
template <class T>
void unpack_shared(const Stage& stage, int level, const T* sums, int64_t shares, int64_t packed, int64_t pitch,
                   T* gradient) {
  constexpr int L = LANES<T>;
  const int64_t levels = int64_t(stage.levels.size()), step = stage.levels[level].step;
  const int64_t first = stage.levels[level].factor.weight, count = stage.levels[level].count;
  std::vector<double> totals(4 * count);
  for (int64_t tile = 0; tile < int64_t(stage.tiles.size()); ++tile) {
    const T* from = sums + stage.packed + tile * stage.tile_packed;
    for (const PackedPair& pair : stage.pairs) {
      const int64_t number = stage.numbers[tile * levels + pair.level] + pair.number - first;
      for (int j = 0; j < 4; ++j, from += L) {
        if (pair.level != level) continue;
        for (int k = 0; k < L; ++k) {
          double total = 0;
          for (int64_t i = 0; i < shares; ++i) total += from[i * packed + k];
          totals[j * count + number + k * step] += total;
        }
      }
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    for (int j = 0; j < 4; ++j) gradient[j * pitch + first + i] += T(totals[j * count + i]);
  }
}

// C levels on E vectors of each of U samples; bit C - 1 of a vector's index belongs to the largest stride.
template <int U, int E, int C, bool UP, class T>
INVERTBENCH_INLINE void apply_levels(V<T> (&x)[U][E], const T* matrices) {
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

// Positions of the E vectors of a group: row e is row e % 4 and row e / 4 * 4 together, which takes fewer registers.
template <int E>
struct Rows {
  int64_t low[4], high[(E + 3) / 4];
  explicit INVERTBENCH_INLINE Rows(const std::vector<int64_t>& rows) {
    for (int e = 0; e < 4; ++e) low[e] = e < E ? rows[e] : 0;
    for (int e = 0; e < E; e += 4) high[e / 4] = rows[e];
  }
  template <class T>
  INVERTBENCH_INLINE T* at(T* begin, int e) const {
    return begin + high[e / 4] + low[e % 4];
  }
};

template <int U, int C, bool UP, int TURN, int E, class T>
INVERTBENCH_INLINE void sweep_group(const Rows<E>& from_rows, const T* from, int64_t from_pitch, const Rows<E>& to_rows,
                                    T* to, int64_t to_pitch, const T* matrices) {
  V<T> x[U][E];
#pragma GCC unroll 4
  for (int u = 0; u < U; ++u) {
#pragma GCC unroll 16
    for (int e = 0; e < E; ++e) x[u][e] = load(from_rows.at(from + u * from_pitch, e));
  }
  if constexpr (TURN == Sweep::before) {
    for (int u = 0; u < U; ++u) transpose<T>(x[u]);
  }
  apply_levels<U, E, C, UP, T>(x, matrices);
  if constexpr (TURN == Sweep::after) {
    for (int u = 0; u < U; ++u) transpose<T>(x[u]);
  }
#pragma GCC unroll 4
  for (int u = 0; u < U; ++u) {
#pragma GCC unroll 16
    for (int e = 0; e < E; ++e) store(to_rows.at(to + u * to_pitch, e), x[u][e]);
  }
}

template <int C, bool UP, int TURN, class T>
void run_sweep(const Sweep& sweep, int samples, const T* from, int64_t from_pitch, T* to, int64_t to_pitch,
               const T* matrices) {
  constexpr int E = TURN == Sweep::none ? 1 << C : LANES<T>, REGISTERS = INVERTBENCH_BYTES == 64 ? 32 : 16;
  constexpr int U = 4 * E <= REGISTERS ? 2 : 1;  // samples that share each read of the matrices
  const Rows<E> from_rows(sweep.from_rows), to_rows(sweep.to_rows);
  for (const Sweep::Group& group : sweep.groups) {
    const T *source = from + group.from, *m = matrices + group.packed;
    T* target = to + group.to;
    int n = 0;
    for (; n + U <= samples; n += U, source += U * from_pitch, target += U * to_pitch) {
      sweep_group<U, C, UP, TURN>(from_rows, source, from_pitch, to_rows, target, to_pitch, m);
    }
    if (n < samples) sweep_group<1, C, UP, TURN>(from_rows, source, from_pitch, to_rows, target, to_pitch, m);
  }
}

template <class T>
using RunSweep = void (*)(const Sweep&, int, const T*, int64_t, T*, int64_t, const T*);

template <class T>
RunSweep<T> runner(const Sweep& sweep) {
  constexpr int TURNED = LANES<T> == 2 ? 1 : LANES<T> == 4 ? 2 : LANES<T> == 8 ? 3 : 4;  // log2 L
  if (sweep.turn != Sweep::none) {
    if (sweep.levels == 0) return run_sweep<0, false, Sweep::after, T>;
    if (sweep.turn == Sweep::after) {
      return sweep.up ? run_sweep<TURNED, true, Sweep::after, T> : run_sweep<TURNED, false, Sweep::after, T>;
    }
    return sweep.up ? run_sweep<TURNED, true, Sweep::before, T> : run_sweep<TURNED, false, Sweep::before, T>;
  }
  if (sweep.levels == 1) return run_sweep<1, false, Sweep::none, T>;
  if (sweep.levels == 2) return sweep.up ? run_sweep<2, true, Sweep::none, T> : run_sweep<2, false, Sweep::none, T>;
  if (sweep.levels == 3) return sweep.up ? run_sweep<3, true, Sweep::none, T> : run_sweep<3, false, Sweep::none, T>;
  return sweep.up ? run_sweep<4, true, Sweep::none, T> : run_sweep<4, false, Sweep::none, T>;
}

// A stage on all samples of a chunk, tile by tile. `scratch` has room for two tiles of SAMPLES samples.
template <class T>
void apply_stage(const Stage& stage, int64_t dim, int64_t samples, const T* packed, const T* x, T* y, T* scratch) {
  const int64_t pitch = stage.vectors * LANES<T>;
  const T* matrices = packed + stage.packed;
  for (const int64_t tile : stage.tiles) {
    for (int64_t first = 0; first < samples; first += SAMPLES) {
      const int count = int(std::min(SAMPLES, samples - first));
      T *at = scratch, *other = scratch + SAMPLES * pitch;
      for (const Sweep& sweep : stage.sweeps) {
        const T* from = sweep.from_event ? x + first * dim + tile : at;
        if (sweep.turn != Sweep::none && !sweep.from_event) std::swap(at, other);
        T* to = sweep.to_event ? y + first * dim + tile : at;
        const int64_t from_pitch = sweep.from_event ? dim : pitch, to_pitch = sweep.to_event ? dim : pitch;
        runner<T>(sweep)(sweep, count, from, from_pitch, to, to_pitch, matrices);
      }
    }
    matrices += stage.tile_packed;
  }
}

// Where the first stage that touches x reads it: a wide stage a copy in y, since a processor prefetches sequential
// reads, but not the rows of such a stage.
template <class T>
const T* source(const Stage& stage, int64_t dim, int64_t samples, const T* x, T* y) {
  if (!stage.wide) return x;
  const int64_t begin = stage.tiles.front(), size = stage.vectors * LANES<T> * int64_t(stage.tiles.size());
  for (int64_t at = begin; at < samples * dim; at += dim) std::memcpy(y + at, x + at, size_t(size) * sizeof(T));
  return y;
}

// Samples, `chunk` at a time, so that the output of one stage is in the cache when the next reads it.
template <class T>
void apply_staged(const StagedButterfly& staged, const T* packed, int64_t samples, int64_t chunk, const T* x, T* y,
                  T* scratch) {
  const int64_t dim = staged.butterfly.dim;
  for (int64_t first = 0; first < samples; first += chunk) {
    const int64_t count = std::min(chunk, samples - first), at = first * dim;
    for (const Stage& stage : staged.stages) {
      const T* from = stage.first ? source(stage, dim, count, x + at, y + at) : y + at;
      apply_stage(stage, dim, count, packed, from, y + at, scratch);
    }
  }
}
