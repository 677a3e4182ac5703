// Apply a butterfly to a tile: a few samples, with each entry stored side by side for all of them.
//
// Two factors in a row become one pass, which applies both to groups of four entries while they are in registers.
// The passes whose pairs are close run block by block, so that a block stays in the first cache from one pass to the
// next. A pass reads its matrices in one stream, in the order in which it needs them: the packed weight, made once
// per call.
//
// An event too large for the second cache is cut into panels: in a part of depth m, the entries form 2^m runs within
// which no factor distinguishes entries, so that any `width` columns of the 2^m rows form a separate butterfly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "butterfly/plan.h"

namespace invertbench {

constexpr int64_t BLOCK_BYTES = 24 << 10;  // of a first cache of 32
constexpr int64_t TILE_BYTES = 512 << 10;  // of a second cache of 1024; larger events are cut into panels of half of it

struct Pass {
  int count;            // of its factors, 1 or 2
  Factor factors[2];    // first applied first
  int64_t strides[2];   // between the entries of a pair, in rows of the tile
  int64_t packed;       // offset of its matrices in the packed weight, in numbers
  int64_t packed_size;  // total count of numbers
  int64_t rows;         // of the whole problem

  int64_t widest() const { return count == 2 ? std::max(strides[0], strides[1]) : strides[0]; }
  // Groups of entries in a row, which take the same matrices where those are shared.
  int64_t alike() const { return count == 2 ? std::min(strides[0], strides[1]) : strides[0]; }
  // Numbers for one group: a, b, c, d for each pair of each factor.
  int64_t group() const { return count == 2 ? 16 : 4; }
};

struct Segment {  // passes first, ..., last - 1, block of rows by block of rows
  int first, last;
  int64_t block;
};

struct Problem {   // a panel of a part
  int64_t start;   // of the part among the D entries
  int64_t run;     // entries of a run of the part
  int64_t column;  // the first of the panel
  int64_t width;   // its columns: row m of the tile is entry start + (m / width) run + column + m % width
  int64_t rows;    // of the tile
  std::vector<Pass> passes;
  std::vector<Segment> segments;
};

struct Schedule {
  Butterfly butterfly;
  bool whole = true;  // all problems together fill one tile of D rows, in order; else each has a separate tile
  std::vector<Problem> problems;
  int64_t packed = 0;      // numbers in the packed weight
  int64_t tile_rows = 0;   // of the largest tile
  int64_t segments = 1;    // the most of a problem
  int64_t block_rows = 0;  // largest intermediate result of a segment's passes: a block after each but the last
};

inline std::vector<Segment> make_segments(const std::vector<Pass>& passes, int64_t rows, int64_t most) {
  std::vector<Segment> segments;
  const int count = int(passes.size());
  for (int first = 0; first < count;) {
    int64_t block = 2 * passes[first].widest();
    int last = first + 1;
    if (block > most) block = rows;
    for (; block <= most && last < count && 2 * passes[last].widest() <= most; ++last) {
      block = std::max(block, 2 * passes[last].widest());
    }
    segments.push_back({first, last, block});
    first = last;
  }
  return segments;
}

inline Problem make_problem(const Part& part, bool shared, int64_t column, int64_t width, int64_t block_rows,
                            int64_t& packed) {
  const int64_t run = part.size >> part.depth;
  Problem problem{part.start, run, column, width, width << part.depth, {}, {}};
  const auto& factors = part.factors;
  for (size_t i = 0; i < factors.size();) {
    const bool two = i + 1 < factors.size() && factors[i].half != factors[i + 1].half;
    Pass pass{two ? 2 : 1, {factors[i], factors[two ? i + 1 : i]}, {}, packed, 0, problem.rows};
    for (int j = 0; j < 2; ++j) pass.strides[j] = pass.factors[j].half / run * width;
    pass.packed_size = (problem.rows >> pass.count) / (shared ? pass.alike() : 1) * pass.group();
    packed += pass.packed_size;
    problem.passes.push_back(pass);
    i += pass.count;
  }
  problem.segments = make_segments(problem.passes, problem.rows, block_rows);
  return problem;
}

// `row_bytes`: of one entry of a tile, all its samples. `panels`: whether a large event may be cut.
inline Schedule make_schedule(Butterfly butterfly, int64_t row_bytes, bool panels) {
  Schedule schedule;
  schedule.whole = !panels || butterfly.dim * row_bytes <= TILE_BYTES;
  schedule.tile_rows = schedule.whole ? butterfly.dim : 0;
  for (const Part& part : butterfly.parts) {
    const int64_t run = part.size >> part.depth;
    // At least a cache line of columns, whatever the depth of the part.
    const int64_t most = std::max<int64_t>(TILE_BYTES / 2 / row_bytes >> part.depth, 16) / 16 * 16;
    const int64_t width = schedule.whole ? run : std::min(run, most);
    for (int64_t column = 0; column < run; column += width) {
      Problem problem = make_problem(part, butterfly.shared, column, std::min(width, run - column),
                                     BLOCK_BYTES / row_bytes, schedule.packed);
      if (!schedule.whole) schedule.tile_rows = std::max(schedule.tile_rows, problem.rows);
      schedule.segments = std::max(schedule.segments, int64_t(problem.segments.size()));
      for (const Segment& segment : problem.segments) {
        schedule.block_rows = std::max(schedule.block_rows, (segment.last - segment.first - 1) * segment.block);
      }
      schedule.problems.push_back(std::move(problem));
    }
  }
  schedule.butterfly = std::move(butterfly);
  return schedule;
}

}  // namespace invertbench
