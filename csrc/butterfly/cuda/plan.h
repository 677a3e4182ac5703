// Plan the launches of a butterfly: stages of factors, each on tiles that a block of threads holds in shared memory.
//
// Write the position of an entry in its part as rows and columns: the 2^lowest blocks of `columns` consecutive entries
// that no factor of the stage distinguishes are columns; above come `rows` = 2^bits rows, which the factors pair by
// one bit each; above these the part repeats, `outer` times. Entry ((o rows + r) columns + c) of the part then pairs
// with r ^ (1 << bit), by matrix ((o rows / 2 + r without its bit) columns + c) of the factor, or, where the pairs of a
// block share one, by matrix (o rows + r) >> (bit + 1). Most of it is free of o: with Q = o rows + r only Q counts.
//
// A tile is `height` rows Q, a multiple of `rows`, times `width` columns; entries beyond the part are masked.
// The factors of a stage are cut into phases: a thread applies one to 2^bits entries of a tile in registers.
// Between phases the threads exchange entries in place, in the tile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "butterfly/plan.h"
#include "cuda/block.h"

namespace invertbench {

constexpr int MOST_FACTORS = 24;        // of a launch
constexpr int MOST_PHASES = 8;
constexpr int MOST_ROW_BITS = 12;       // of a tile
constexpr int PHASE_BITS = 5;           // 32 entries of a sample in registers
constexpr int KEPT_BITS = 3;            // the same, in phases whose matrices or gradients stay in registers
constexpr int KEPT_FACTORS = 3;
constexpr int KEPT_ENTRIES = 1 << KEPT_BITS;
constexpr int MOST_THREADS = 384;
constexpr int MOST_THREADS_DOUBLE = 192;
constexpr int HELD_BYTES = 256;          // of entries in the registers of a thread, several samples together
constexpr int MOST_ENTRIES = 4096;      // of a tile that is a whole number of columns
constexpr int GROUP_ENTRIES = 2048;     // of the samples that a block maps at once, where tiles are small
constexpr int MOST_SAMPLES = 32;
constexpr int SECTOR = 32;              // bytes that global memory moves at the least
constexpr int LINE = 128;               // bytes that it moves best
constexpr int BLOCKS = 3;               // of a processor: while one waits at a barrier, others continue

struct TileFactor {
  int64_t weight;  // offset of its matrices
  int bit;         // of Q
  int place;       // offset of its matrices in shared memory, counted in matrices, if shared
};

struct TilePhase {
  int first, last;  // its factors
  int low, bits;    // they pair bits low, ..., low + bits - 1 of Q; the thread holds these
  Divisor step;     // width << low: how far entries that differ in the lowest of these bits lie apart
  int place;        // where its matrices begin in shared memory, counted in matrices; of no use if they are shared
};

struct TileStage {
  int64_t start = 0, columns = 1, count = 1;  // entries of the part from `start` on: `count` rows Q of `columns`
  int rows_bits = 0;
  int width = 1, height = 1, size = 1, pitch = 1;  // size = width height; pitch: of a sample in shared memory
  int samples = 4, buffers = 2, threads = MOST_THREADS;
  int tiles_at = 0, bytes = 0;  // of shared memory; the matrices come first
  int column_tiles = 1, tiles = 1;
  bool shared = false, kept = false;  // kept: the first and the last phase keep their matrices in registers
  bool plain = false;                 // a tile is a run of entries, none masked, in the order of the event
  bool planes = false;                // read and written by planes of the layout, see `place`
  int64_t colours = 1, groups = 1, positions = 0;  // of the layout; 0 for none
  Divisor by_width, by_segment, by_plane, by_groups, by_channels;
  int factors = 0, phases = 0, matrices = 0;  // matrices: in shared memory
  TileFactor factor[MOST_FACTORS];
  TilePhase phase[MOST_PHASES];
  int64_t weights_begin = 0, weights_count = 0;  // the matrices of all its factors
  int part_first = 0, part_last = 0;             // its factors, counted in the part
};

struct DeviceLimits {
  int shared_bytes = 227 << 10;  // of a block
};

struct EventLayout {
  int64_t colours = 1, groups = 1, positions = 0;
};

// Shared memory of 32 banks: entries that a phase separates by a power of two should not share a bank.
INVERTBENCH_HOST_DEVICE inline int padded(int entry) { return entry + (entry >> 5); }

namespace planning {

struct Range {
  int first, last;  // of factors
  int low, high;    // the bits they pair
};

// Runs of factors, as long as they pair at most `most_bits` neighbouring bits and are at most `most` factors.
inline std::vector<Range> cut(const std::vector<int>& bits, int first, int last, int most_bits, int most) {
  std::vector<Range> runs;
  for (int i = first; i < last; ++i) {
    const int bit = bits[i];
    if (!runs.empty()) {
      Range& run = runs.back();
      const int low = std::min(run.low, bit), high = std::max(run.high, bit);
      if (high - low < most_bits && i - run.first < most) {
        run = {run.first, i + 1, low, high};
        continue;
      }
    }
    runs.push_back({i, i + 1, bit, bit});
  }
  return runs;
}

// The same, as few as with `most_bits`, and about equally wide.
inline std::vector<Range> cut_evenly(const std::vector<int>& bits, int first, int last, int most_bits, int most) {
  std::vector<Range> best = cut(bits, first, last, most_bits, most);
  for (int fewer = most_bits - 1; fewer >= 1; --fewer) {
    std::vector<Range> runs = cut(bits, first, last, fewer, most);
    if (runs.size() > best.size()) break;
    best = std::move(runs);
  }
  return best;
}

// The purpose of a stage, which decides its contents.
struct Purpose {
  int number;     // bytes of one
  bool backward;  // else forward
};

// Assign the phases their windows: at least KEPT_BITS wide, so that few kinds of phases suffice.
inline void add_phases(TileStage& stage, const std::vector<Range>& runs, const std::vector<Factor>& factors,
                       const std::vector<int>& bits) {
  const int low_most = std::max(0, stage.rows_bits - KEPT_BITS);
  for (const Range& run : runs) {
    TilePhase& phase = stage.phase[stage.phases++];
    phase.low = std::min(run.low, low_most);
    phase.bits = std::max(KEPT_BITS, run.high + 1 - phase.low);
    phase.first = stage.factors;
    for (int i = run.first; i < run.last; ++i) stage.factor[stage.factors++] = {factors[i].weight, bits[i], 0};
    phase.last = stage.factors;
  }
}

// Choose the tile for at most `most` entries, with contiguous runs of at least `run_bytes`, and lay out shared
// memory; return false if it does not fit.
inline bool fit(TileStage& stage, const Purpose& purpose, int shared_bytes, int run_bytes, int64_t most, int buffers) {
  const int64_t rows = int64_t(1) << stage.rows_bits;
  const int64_t unit = std::max<int64_t>(rows, KEPT_ENTRIES);  // so that every window of KEPT_BITS fits
  const int64_t sector = std::max<int64_t>(1, run_bytes / purpose.number);
  if (stage.columns * unit <= most) {
    stage.width = int(stage.columns);
    const int64_t available = (stage.count + unit - 1) / unit;
    stage.height = int(std::min(available, most / (stage.columns * unit)) * unit);
  } else {
    int64_t width = most / unit;
    if (width < std::min(sector, stage.columns)) return false;
    for (const int64_t multiple : {int64_t(32), sector}) {
      if (width >= multiple) {
        width -= width % multiple;
        break;
      }
    }
    stage.width = int(width);
    stage.height = int(unit);
  }
  stage.size = stage.width * stage.height;
  stage.pitch = padded(stage.size - 1) + 1;
  stage.buffers = buffers;
  stage.samples = purpose.backward ? 2 : (purpose.number == 8 ? 2 : 4);
  stage.matrices = 0;
  for (int i = 0; i < stage.phases; ++i) {
    TilePhase& phase = stage.phase[i];
    phase.step = Divisor(int64_t(stage.width) << phase.low);
    phase.place = stage.matrices;
    if (stage.kept && (i == 0 || i == stage.phases - 1)) continue;
    for (int f = phase.first; f < phase.last; ++f) {
      stage.factor[f].place = stage.matrices;
      stage.matrices += stage.shared ? std::max(1, stage.height >> (stage.factor[f].bit + 1)) : stage.size / 2;
    }
  }
  stage.tiles_at = (stage.matrices * 4 * purpose.number + 15) / 16 * 16;
  const int held = purpose.backward ? 1 + stage.phases : buffers;
  int64_t bytes = stage.tiles_at + int64_t(held) * stage.samples * stage.pitch * purpose.number;
  if (purpose.backward && stage.shared) bytes = std::max<int64_t>(bytes, int64_t(4) * stage.size * purpose.number);
  if (bytes > shared_bytes) return false;
  // A phase takes 1, 2 or 4 samples together, so a power of two of them.
  while (!purpose.backward && !stage.kept && 2 * stage.samples * stage.size <= GROUP_ENTRIES) {
    const int64_t more = int64_t(held) * stage.samples * stage.pitch * purpose.number;
    if (stage.samples == MOST_SAMPLES || bytes + more > shared_bytes) break;
    stage.samples *= 2;
    bytes += more;
  }
  stage.bytes = int(bytes);
  return true;
}

// Set everything that follows from the tile.
inline void finish(TileStage& stage, const Purpose& purpose, const EventLayout& layout) {
  const int64_t column_tiles = (stage.columns + stage.width - 1) / stage.width;
  stage.column_tiles = int(column_tiles);
  stage.tiles = int(column_tiles * ((stage.count + stage.height - 1) / stage.height));
  const int work = purpose.backward || stage.kept ? stage.size / KEPT_ENTRIES : stage.size * stage.samples / (HELD_BYTES / purpose.number);
  const int most = purpose.number == 8 ? MOST_THREADS_DOUBLE : MOST_THREADS;
  stage.threads = std::min(most, std::max(64, (work + 31) / 32 * 32));
  stage.bytes = std::max(stage.bytes, stage.threads * int(sizeof(double)));  // which the log-det needs
  stage.colours = layout.colours;
  stage.groups = layout.groups;
  stage.positions = layout.positions;
  const int64_t channels = layout.colours * layout.groups;
  const bool whole = stage.width == stage.columns;
  const int64_t segment = whole ? stage.size : stage.width;  // consecutive entries
  const int64_t origin = whole ? int64_t(stage.height) * stage.columns : stage.columns;
  stage.planes = layout.positions > 0 && stage.start % channels == 0 && segment % channels == 0 &&
                 origin % channels == 0;
  stage.plain = layout.positions == 0 && whole && stage.count % stage.height == 0;
  stage.by_width = Divisor(stage.width);
  stage.by_segment = Divisor(segment);
  stage.by_plane = Divisor(stage.planes ? segment / channels : 1);
  stage.by_groups = Divisor(layout.groups);
  stage.by_channels = Divisor(channels);
}

// Make one stage of factors first, ..., last - 1 of a part; return false if it does not fit.
inline bool make_stage(const Part& part, const std::vector<int>& depths, const Range& run, bool shared,
                       const Purpose& purpose, const DeviceLimits& limits, const EventLayout& layout,
                       TileStage& stage) {
  const bool any = run.last > run.first;
  const int64_t run_entries = part.size >> part.depth;
  const int64_t columns = any ? run_entries << run.low : 1;
  stage = TileStage();
  stage.start = part.start;
  stage.columns = columns;
  stage.count = part.size / columns;
  stage.rows_bits = any ? run.high - run.low + 1 : 0;
  stage.shared = shared;
  stage.part_first = run.first;
  stage.part_last = run.last;
  if (stage.rows_bits > MOST_ROW_BITS || run.last - run.first > MOST_FACTORS) return false;
  std::vector<int> bits(depths);
  for (int& bit : bits) bit -= run.low;
  if (any) {
    stage.weights_begin = part.factors[run.first].weight;
    int64_t end = 0;
    for (int i = run.first; i < run.last; ++i) {
      const Factor& factor = part.factors[i];
      stage.weights_begin = std::min(stage.weights_begin, factor.weight);
      end = std::max(end, factor.weight + part.size / 2 / (shared ? factor.half : 1));
    }
    stage.weights_count = end - stage.weights_begin;
  }
  const auto attempt = [&](const std::vector<Range>& runs, bool kept, int64_t most, int share = 1) {
    if (runs.size() > size_t(MOST_PHASES)) return false;
    const int shared_bytes = limits.shared_bytes / share, run_bytes = share > 1 ? LINE : SECTOR;
    for (int buffers = 2; buffers >= (share > 1 ? 2 : 1); --buffers) {
      stage.factors = stage.phases = 0;
      stage.kept = kept;
      add_phases(stage, runs, part.factors, bits);
      for (int64_t entries = most; entries >= 8; entries /= 2) {
        if (fit(stage, purpose, shared_bytes, run_bytes, entries, buffers)) {
          finish(stage, purpose, layout);
          return true;
        }
      }
    }
    return false;
  };
  if (purpose.backward) {
    const std::vector<Range> runs = cut_evenly(bits, run.first, run.last, KEPT_BITS, KEPT_FACTORS);
    return runs.size() <= 2 && attempt(runs, false, (purpose.number == 8 ? MOST_THREADS_DOUBLE : MOST_THREADS) * KEPT_ENTRIES);
  }
  const std::vector<Range> all = cut_evenly(bits, run.first, run.last, PHASE_BITS, MOST_FACTORS);
  if (attempt(all, false, MOST_ENTRIES, BLOCKS) || attempt(all, false, MOST_ENTRIES)) return true;
  if (shared || purpose.number != 4 || run.last - run.first < 3) return false;
  // A few of the factors at either end in registers: what is left of the matrices may fit.
  const std::vector<Range> head = cut(bits, run.first, run.last, KEPT_BITS, KEPT_FACTORS);
  std::vector<int> backwards(bits.rend() - run.last, bits.rend() - run.first);
  const std::vector<Range> tail = cut(backwards, 0, int(backwards.size()), KEPT_BITS, KEPT_FACTORS);
  const int end = run.last - (tail[0].last - tail[0].first);
  if (end < head[0].last) return false;
  std::vector<Range> runs = cut_evenly(bits, head[0].last, end, PHASE_BITS - 1, MOST_FACTORS);
  runs.insert(runs.begin(), head[0]);
  runs.push_back({end, run.last, tail[0].low, tail[0].high});
  return attempt(runs, true, MOST_THREADS * KEPT_ENTRIES);
}

}  // namespace planning

// The launches of one part: the fewest that fit, of about equal size.
inline std::vector<TileStage> make_stages(const Part& part, bool shared, const planning::Purpose& purpose,
                                          const DeviceLimits& limits, const EventLayout& layout) {
  using namespace planning;
  const int64_t run = part.size >> part.depth;
  std::vector<int> bits;  // of the rows of the whole part
  for (const Factor& factor : part.factors) {
    int bit = 0;
    while (run << bit < factor.half) ++bit;
    bits.push_back(bit);
  }
  const auto stages_of = [&](int most_bits, int most, std::vector<TileStage>& stages) {
    stages.clear();
    for (const Range& range : cut(bits, 0, int(bits.size()), most_bits, most)) {
      stages.emplace_back();
      if (!make_stage(part, bits, range, shared, purpose, limits, layout, stages.back())) return false;
    }
    return true;
  };
  std::vector<TileStage> best, stages;
  if (bits.empty()) {
    best.emplace_back();
    make_stage(part, bits, {0, 0, 0, 0}, shared, purpose, limits, layout, best.back());
    return best;
  }
  // By bits, and where many factors pair the same few bits, by their number.
  for (int most = purpose.backward ? 2 * KEPT_FACTORS : MOST_FACTORS; most >= 1; --most) {
    for (int most_bits = purpose.backward ? 2 * KEPT_BITS : MOST_ROW_BITS; most_bits >= 1; --most_bits) {
      if (stages_of(most_bits, most, stages) && (best.empty() || stages.size() <= best.size())) best = stages;
    }
    if (!best.empty()) break;
  }
  return best;
}

}  // namespace invertbench
