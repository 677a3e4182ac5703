// Copy tiles of a batch from the events and back, and map them.
//
// Included by simd/each.h, in the namespace of an instruction set: no include guard.

template <int U, class T>
void apply_pass_of(const Pass& pass, bool shared, int64_t block, const T* matrices, const T* from, T* to) {
  if (shared) {
    if (pass.count == 1) apply_pass<true, U, 1>(pass, block, matrices, from, to);
    else apply_pass<true, U, 2>(pass, block, matrices, from, to);
  } else {
    if (pass.count == 1) apply_pass<false, U, 1>(pass, block, matrices, from, to);
    else apply_pass<false, U, 2>(pass, block, matrices, from, to);
  }
}

template <int U, class T>
void backward_pass_of(const Pass& pass, bool shared, int64_t block, const T* matrices, const T* tile, T* grads,
                      double* sums) {
  if (shared) {
    if (pass.count == 1) backward_pass<true, U, 1>(pass, block, matrices, tile, grads, sums);
    else backward_pass<true, U, 2>(pass, block, matrices, tile, grads, sums);
  } else {
    if (pass.count == 1) backward_pass<false, U, 1>(pass, block, matrices, tile, grads, sums);
    else backward_pass<false, U, 2>(pass, block, matrices, tile, grads, sums);
  }
}

// Offset in the packed weight of the matrices for the block that begins at row `first`.
inline int64_t matrices_at(const Pass& pass, int64_t first) { return pass.packed + first * pass.packed_size / pass.rows; }

template <int U, class T>
void apply_segment(const Problem& problem, const Segment& segment, bool shared, const T* packed, const T* from, T* to) {
  constexpr int64_t S = U * LANES<T>;
  for (int64_t first = 0; first < problem.rows; first += segment.block) {
    for (int i = segment.first; i < segment.last; ++i) {
      const Pass& pass = problem.passes[i];
      apply_pass_of<U>(pass, shared, segment.block, packed + matrices_at(pass, first),
                       (i == segment.first ? from : to) + first * S, to + first * S);
    }
  }
}

template <int U, class T>
void backward_segment(const Problem& problem, const Segment& segment, bool shared, const T* packed, const T* tile,
                      T* grads, T* blocks, double* sums) {
  constexpr int64_t S = U * LANES<T>;
  const int64_t block = segment.block;
  for (int64_t first = 0; first < problem.rows; first += block) {
    for (int i = segment.first; i + 1 < segment.last; ++i) {
      const Pass& pass = problem.passes[i];
      T* after = blocks + (i - segment.first) * block * S;
      const T* before = i == segment.first ? tile + first * S : after - block * S;
      apply_pass_of<U>(pass, shared, block, packed + matrices_at(pass, first), before, after);
    }
    for (int i = segment.last - 1; i >= segment.first; --i) {
      const Pass& pass = problem.passes[i];
      const T* input = i == segment.first ? tile + first * S : blocks + (i - segment.first - 1) * block * S;
      const int64_t at = matrices_at(pass, first);
      backward_pass_of<U>(pass, shared, block, packed + at, input, grads + first * S, sums + at);
    }
  }
}

// The rows of a tile and the events they come from: a whole event, or the columns of one panel.
template <int U, class T>
void load_tile(const Job<T>& job, const Problem* panel, const T* const* x, T* tile) {
  if (!panel) {
    for (const Run& run : job.runs) load_run<U>(x, run.from, run.length, tile, run.row, run.stride);
    return;
  }
  for (int64_t row = 0, from = panel->start + panel->column; row < panel->rows; row += panel->width, from += panel->run) {
    load_run<U>(x, from, panel->width, tile, row, 1);
  }
}

template <int U, class T>
void store_tile(const Job<T>& job, const Problem* panel, const T* tile, T* const* y) {
  if (!panel) {
    for (const Run& run : job.runs) store_run<U>(y, run.from, run.length, tile, run.row, run.stride);
    return;
  }
  for (int64_t row = 0, to = panel->start + panel->column; row < panel->rows; row += panel->width, to += panel->run) {
    store_run<U>(y, to, panel->width, tile, row, 1);
  }
}

template <int U, class T>
void apply_items(const Job<T>& job, int64_t begin, int64_t end, T* tile) {
  constexpr int S = U * LANES<T>;
  const Schedule& schedule = job.schedule;
  const int64_t dim = schedule.butterfly.dim, panels = schedule.whole ? 1 : int64_t(schedule.problems.size());
  for (int64_t item = begin; item < end; ++item) {
    const Problem* panel = schedule.whole ? nullptr : &schedule.problems[item % panels];
    const T* x[S];
    T* y[S];
    for (int s = 0; s < S; ++s) {  // samples past the last repeat the last, so that the same values are written twice
      const int64_t sample = std::min(item / panels * S + s, job.batch - 1);
      x[s] = job.x + sample * dim;
      y[s] = job.y + sample * dim;
    }
    load_tile<U>(job, panel, x, tile);
    for (const Problem& problem : schedule.problems) {
      if (panel && &problem != panel) continue;
      T* rows = panel ? tile : tile + problem.start * S;
      for (const Segment& segment : problem.segments) {
        apply_segment<U>(problem, segment, schedule.butterfly.shared, job.packed, rows, rows);
      }
    }
    store_tile<U>(job, panel, tile, y);
  }
}

template <int U, class T>
void backward_items(const Job<T>& job, int64_t begin, int64_t end, T* scratch, double* sums) {
  constexpr int S = U * LANES<T>;
  const Schedule& schedule = job.schedule;
  const bool shared = schedule.butterfly.shared;
  const int64_t dim = schedule.butterfly.dim, panels = schedule.whole ? 1 : int64_t(schedule.problems.size());
  const int64_t tile = schedule.tile_rows * S;
  T *grads = scratch, *blocks = grads + tile, *inputs = blocks + schedule.block_rows * S;
  T* nowhere = inputs + schedule.segments * tile;
  for (int64_t item = begin; item < end; ++item) {
    const Problem* panel = schedule.whole ? nullptr : &schedule.problems[item % panels];
    const T *x[S], *dy[S];
    T* dx[S];
    for (int s = 0; s < S; ++s) {  // samples past the last have no gradient
      const int64_t sample = item / panels * S + s, there = std::min(sample, job.batch - 1);
      x[s] = job.x + there * dim;
      dy[s] = sample == there ? job.dy + sample * dim : job.zeros;
      dx[s] = sample == there ? job.y + sample * dim : nowhere;
    }
    load_tile<U>(job, panel, x, inputs);
    load_tile<U>(job, panel, dy, grads);
    for (const Problem& problem : schedule.problems) {
      if (panel && &problem != panel) continue;
      const int64_t start = panel ? 0 : problem.start * S;
      const int count = int(problem.segments.size());
      for (int i = 0; i + 1 < count; ++i) {
        T* from = inputs + i * tile + start;
        apply_segment<U>(problem, problem.segments[i], shared, job.packed, from, from + tile);
      }
      for (int i = count - 1; i >= 0; --i) {
        backward_segment<U>(problem, problem.segments[i], shared, job.packed, inputs + i * tile + start, grads + start,
                            blocks, sums);
      }
    }
    store_tile<U>(job, panel, grads, dx);
  }
}

template <class T>
void apply(const Job<T>& job, int vectors, int64_t begin, int64_t end, T* scratch) {
  if (vectors == 1) apply_items<1>(job, begin, end, scratch);
  else apply_items<2>(job, begin, end, scratch);
}

template <class T>
void backward(const Job<T>& job, int vectors, int64_t begin, int64_t end, T* scratch, double* sums) {
  if (vectors == 1) backward_items<1>(job, begin, end, scratch, sums);
  else backward_items<2>(job, begin, end, scratch, sums);
}
