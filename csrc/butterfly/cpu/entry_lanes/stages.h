// Apply a butterfly with its entries side by side in vectors, in their memory order.
//
// A factor pairs entries a fixed stride apart. Where that is a multiple of the L numbers of a vector (a wide level)
// whole vectors pair, and so do the matrices between them. The strides of narrow levels are W 1, W 2, ..., W L / 2 with
// an odd W: they pair entries within blocks of W vectors. Every entry has two coefficients there, of itself and of its
// partner, and the partners of a vector's entries are picked from the vectors of the block.
//
// A stage is a run of levels that act within small tiles of vectors, so that a tile of some samples and its matrices
// stay in the first cache. The weight is packed in the order of its use, once per call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "butterfly/plan.h"

namespace invertbench {

constexpr int64_t SMALL_TILE = 16;    // vectors in a tile; with W = 1 or 3 it has pairs of wide levels, the fastest
constexpr int64_t LARGE_TILE = 32;    // the same, where that makes fewer stages
constexpr int64_t MOST_BLOCK = 7;     // W: more do not fit in registers; `with_block` has a case for each
constexpr int MOST_LEVELS = 8;        // in a stage
constexpr int64_t SAMPLES = 8;        // processed together
constexpr int64_t SAMPLES_BACK = 12;  // the same, backward, where the sums of gradients are read and written as well
constexpr size_t MOST_TOGETHER = 3;   // wide levels on vectors that stay in registers
constexpr size_t MOST_BACK = 2;       // levels, backward, beside the sums of the gradients of their matrices

struct Level {
  Factor factor;
  int64_t stride;  // between the entries of a pair, in memory
  int64_t count;   // of its matrices
};

// Some levels, all wide or all narrow, on groups of vectors in registers.
struct Sweep {
  struct Group {
    int64_t from, to;  // positions of its first vector
    int64_t packed;    // offset of its matrices in those of the tile
  };
  int levels = 0;
  bool up = false;                            // wide: the smallest stride first
  std::vector<int> shifts;                    // narrow: log2 (stride / W) of every level
  bool from_event = false, to_event = false;  // else the vectors of a tile follow each other in scratch memory
  std::vector<int64_t> from_rows, to_rows;    // of the vectors of a group, from its first
  std::vector<Group> groups;
  std::vector<int64_t> packed;  // of a step: the offsets of the matrices of every group, level by level
};

// The coefficients of two vectors between which matrices act, a, b, c and d; or of one vector, own and other.
struct Packed {
  int level;
  int vectors;  // of coefficients: 4 or 2
  bool run;     // of neighbouring lanes: neighbours in the weight. Only the first a has a source.
};

struct Stage {
  bool first = true;  // of its part
  std::vector<Level> levels;
  int64_t vectors = 0;           // of a tile
  std::vector<int64_t> places;   // of the vectors in the event, from the tile's first
  std::vector<int64_t> tiles;    // their offsets in the event
  std::vector<int64_t> numbers;  // of the first matrix of every tile and level in the weight
  std::vector<Packed> order;     // of the packed weight of a tile
  std::vector<int64_t> sources;  // of the coefficients of a tile in the weight, from the first matrix of their level
  std::vector<Sweep> sweeps;     // from the event and back to it
  std::vector<Sweep> steps;      // the same, one or two levels at a time, for the backward pass
  int64_t packed = 0, tile_packed = 0;  // offset of its matrices in the packed weight; numbers for one tile
};

struct StagedButterfly {
  Butterfly butterfly;
  std::vector<Stage> stages;
  int64_t packed = 0;   // numbers in the packed weight
  int64_t vectors = 0;  // of the largest tile
};

// The levels of one part in memory order, cut into stages.
class StageMaker {
 public:
  StageMaker(const Part& part, const Layout& layout, bool shared, int64_t matrices, int64_t lanes)
      : part_(part), layout_(layout), shared_(shared), matrices_(matrices), lanes_(lanes) {}

  // Append to `stages`; return false if vectors of so many lanes are not usable.
  bool make(std::vector<Stage>& stages) {
    if (!find_levels()) return false;
    tile_ = stages_of(LARGE_TILE) < stages_of(SMALL_TILE) ? LARGE_TILE : SMALL_TILE;
    for (size_t at = 0, end; at < levels_.size(); at = end) {
      end = end_of_stage(at, tile_);
      Stage stage;
      stage.first = at == 0;
      stage.levels.assign(levels_.begin() + at, levels_.begin() + end);
      lay_tiles(stage);
      find_sweeps(stage);
      for (const int64_t tile : stage.tiles) {
        for (const Level& level : stage.levels) {
          stage.numbers.push_back(level.factor.weight + number(level.factor, tile));
        }
      }
      for (int64_t& tile : stage.tiles) tile += part_.start;
      stages.push_back(std::move(stage));
    }
    return true;
  }

 private:
  // Index of the matrix of the pair with its first entry at `place`, within its factor. Places add up to places,
  // and numbers to numbers, as long as no digit of a mixed-radix number with the strides as its places carries.
  int64_t number(const Factor& factor, int64_t place) const {
    const int64_t n = layout_.positions;
    const int64_t entry = layout_.own() ? place : place % n * layout_.groups + place / n;
    return matrix_of(factor, entry, shared_) - factor.weight;
  }

  bool narrow(const Level& level) const { return level.stride % lanes_ != 0; }

  bool find_levels() {
    const int64_t channels = layout_.groups, n = layout_.positions;
    if (!layout_.own() && (layout_.colours != 1 || n % lanes_)) return false;
    for (const Factor& factor : part_.factors) {
      const int64_t half = factor.half;
      int64_t stride = half;
      if (!layout_.own()) {
        if (half % channels == 0) stride = half / channels;
        else if (channels % (2 * half) == 0) stride = half * n;
        else return false;
      }
      levels_.push_back({factor, stride, part_.size / (shared_ ? 2 * half : 2)});
      if (narrow(levels_.back())) block_ = std::lcm(block_ * lanes_, 2 * stride) / lanes_;
    }
    whole_ = layout_.own() ? part_.size : n;
    return whole_ % (block_ * lanes_) == 0 && block_ <= MOST_BLOCK;
  }

  int64_t stages_of(int64_t tile) const {
    int64_t count = 0;
    for (size_t at = 0; at < levels_.size(); at = end_of_stage(at, tile)) ++count;
    return count;
  }

  // Wide strides that divide each other and, with them, whole blocks if there are narrow levels.
  size_t end_of_stage(size_t at, int64_t tile) const {
    const size_t most = std::min(levels_.size(), at + MOST_LEVELS);
    std::vector<int64_t> strides;  // from the largest on
    for (int64_t columns = 1; at < most; ++at) {
      const int64_t stride = levels_[at].stride;
      if (narrow(levels_[at])) {
        columns = block_;
        if (columns << strides.size() > tile) break;
        continue;
      }
      const auto next = std::lower_bound(strides.begin(), strides.end(), stride, std::greater<>());
      if (next != strides.end() && *next == stride) continue;
      const bool nested = (next == strides.end() || stride % (2 * *next) == 0) &&
                          (next == strides.begin() || *(next - 1) % (2 * stride) == 0);
      if (!nested || columns << (strides.size() + 1) > tile) break;
      strides.insert(next, stride);
    }
    return at;
  }

  // A row for every choice of entries along the wide strides; some neighbouring vectors of each.
  void lay_tiles(Stage& stage) {
    std::vector<int64_t> strides;
    for (const Level& level : stage.levels) {
      if (!narrow(level)) strides.push_back(level.stride);
    }
    std::sort(strides.begin(), strides.end(), std::greater<>());
    strides.erase(std::unique(strides.begin(), strides.end()), strides.end());
    const auto is_narrow = [&](const Level& level) { return narrow(level); };
    const bool blocks = std::any_of(stage.levels.begin(), stage.levels.end(), is_narrow);
    const int64_t rows = int64_t(1) << strides.size(), unit = blocks ? block_ : 1;
    const int64_t run = strides.empty() ? whole_ : std::min(strides.back(), whole_);
    int64_t width = tile_ / rows / unit * unit;
    while (run % (width * lanes_)) width -= unit;
    stage.vectors = rows * width;
    for (int64_t row = 0; row < rows; ++row) {
      int64_t place = 0;
      for (size_t i = 0; i < strides.size(); ++i) place += (row >> (strides.size() - 1 - i) & 1) * strides[i];
      for (int64_t column = 0; column < width; ++column) stage.places.push_back(place + column * lanes_);
    }
    stage.tiles.push_back(0);
    int64_t above = part_.size;  // every digit between the strides in turn
    const auto times = [&](int64_t count, int64_t by) {
      std::vector<int64_t> more;
      more.reserve(stage.tiles.size() * size_t(count));
      for (const int64_t tile : stage.tiles) {
        for (int64_t i = 0; i < count; ++i) more.push_back(tile + i * by);
      }
      stage.tiles = std::move(more);
    };
    for (const int64_t stride : strides) {
      times(above / (2 * stride), 2 * stride);
      above = stride;
    }
    times(above / (width * lanes_), width * lanes_);
    strides_.clear();
    for (const Level& level : stage.levels) {
      int64_t stride = width << strides.size() >> 1;
      for (size_t i = 0; !narrow(level) && strides[i] != level.stride; ++i) stride /= 2;
      strides_.push_back(stride);
    }
  }

  // Levels first, ..., first + count - 1 of a stage, all wide or all narrow, on vectors in scratch memory.
  Sweep levels_sweep(const Stage& stage, size_t first, size_t count) const {
    Sweep sweep;
    sweep.levels = int(count);
    if (narrow(stage.levels[first])) {
      for (size_t i = first; i < first + count; ++i) {
        int shift = 0;
        while (block_ << shift < stage.levels[i].stride) ++shift;
        sweep.shifts.push_back(shift);
      }
      for (int64_t v = 0; v < block_; ++v) sweep.from_rows.push_back(v);
      for (int64_t v = 0; v < stage.vectors; v += block_) sweep.groups.push_back({v, v, 0});
    } else {
      std::vector<int64_t> strides(strides_.begin() + first, strides_.begin() + first + count);
      sweep.up = count > 1 && strides[1] > strides[0];
      if (sweep.up) std::reverse(strides.begin(), strides.end());
      for (int64_t row = 0; row < int64_t(1) << count; ++row) {
        int64_t v = 0;
        for (size_t i = 0; i < count; ++i) v += (row >> (count - 1 - i) & 1) * strides[i];
        sweep.from_rows.push_back(v);
      }
      for (int64_t v = 0; v < stage.vectors; ++v) {  // from the vectors from which no stride leads back
        const auto low = [v](int64_t stride) { return v / stride % 2 == 0; };
        if (std::all_of(strides.begin(), strides.end(), low)) sweep.groups.push_back({v, v, 0});
      }
    }
    sweep.to_rows = sweep.from_rows;
    return sweep;
  }

  // From the numbers of vectors to positions: in the event for the first and from the last, else in scratch memory.
  void place_sweeps(const Stage& stage, std::vector<Sweep>& sweeps) const {
    sweeps.front().from_event = true;
    sweeps.back().to_event = true;
    for (Sweep& sweep : sweeps) {
      const auto from = [&](int64_t v) { return sweep.from_event ? stage.places[v] : v * lanes_; };
      const auto to = [&](int64_t v) { return sweep.to_event ? stage.places[v] : v * lanes_; };
      for (int64_t& row : sweep.from_rows) row = from(row);
      for (int64_t& row : sweep.to_rows) row = to(row);
      for (Sweep::Group& group : sweep.groups) group = {from(group.from), to(group.to), group.packed};
    }
  }

  // Levels of one kind from `at` on that stay in registers: narrow ones, or wide ones with strides that only fall or
  // only grow.
  size_t end_of_sweep(const Stage& stage, size_t at) const {
    const bool narrow = this->narrow(stage.levels[at]);
    size_t end = at + 1;
    while (end < stage.levels.size() && this->narrow(stage.levels[end]) == narrow &&
           (narrow || (strides_[end] != strides_[end - 1] &&
                       (end == at + 1 || (strides_[end] > strides_[end - 1]) == (strides_[at + 1] > strides_[at]))))) {
      ++end;
    }
    if (narrow) return end;
    return at + (end - at == MOST_TOGETHER + 1 ? 2 : std::min(end - at, MOST_TOGETHER));
  }

  // Append the coefficients of vector v, and of its pair, at a level of the stage to the packed order.
  void pack(Stage& stage, size_t level, int64_t v) const {
    const Level& found = stage.levels[level];
    const int64_t stride = found.stride, place = stage.places[v];
    const auto append = [&](int64_t entry, int64_t at) {
      stage.sources.push_back(entry * matrices_ + number(found.factor, at));
    };
    const int vectors = narrow(found) ? 2 : 4;
    const bool run = vectors == 4 && !shared_ && number(found.factor, 1) == 1;
    stage.order.push_back({int(level), vectors, run});
    stage.tile_packed += vectors * lanes_;
    if (run) return append(0, place);
    for (int64_t j = 0; j < vectors; ++j) {
      for (int64_t at = place; at < place + lanes_; ++at) {
        const bool second = vectors == 2 && at / stride % 2;  // of its pair: own d and other c in place of a and b
        append(second ? 3 - j : j, at - second * stride);
      }
    }
  }

  void find_sweeps(Stage& stage) const {
    const size_t count = stage.levels.size();
    std::vector<int64_t> packed_at(count * stage.vectors);
    const auto begins = [&](size_t level, int64_t v) {  // a pair, or its own partners
      return narrow(stage.levels[level]) || v / strides_[level] % 2 == 0;
    };
    for (size_t at = 0, end; at < count; at = end) {
      end = end_of_sweep(stage, at);
      Sweep sweep = levels_sweep(stage, at, end - at);
      for (Sweep::Group& group : sweep.groups) {
        group.packed = stage.tile_packed;
        for (size_t i = at; i < end; ++i) {
          for (const int64_t row : sweep.from_rows) {
            const int64_t v = group.from + row;
            if (!begins(i, v)) continue;
            packed_at[i * stage.vectors + v] = stage.tile_packed;
            pack(stage, i, v);
          }
        }
      }
      for (size_t i = at; i < end; i += MOST_BACK) {
        Sweep step = levels_sweep(stage, i, std::min(MOST_BACK, end - i));
        for (const Sweep::Group& group : step.groups) {
          for (size_t level = i; level < i + size_t(step.levels); ++level) {
            for (const int64_t row : step.from_rows) {
              const int64_t v = group.from + row;
              if (begins(level, v)) step.packed.push_back(packed_at[level * stage.vectors + v]);
            }
          }
        }
        stage.steps.push_back(std::move(step));
      }
      stage.sweeps.push_back(std::move(sweep));
    }
    place_sweeps(stage, stage.sweeps);
    place_sweeps(stage, stage.steps);
  }

  const Part& part_;
  const Layout& layout_;
  const bool shared_;
  const int64_t matrices_;  // P
  const int64_t lanes_;
  int64_t block_ = 1;  // W
  int64_t whole_ = 0;  // consecutive entries
  int64_t tile_ = 0;   // the most vectors in one
  std::vector<Level> levels_;
  std::vector<int64_t> strides_;  // of the wide levels of a stage, in vectors of a tile
};

// Return nothing if vectors of so many lanes are not usable: a part is too small, or pairs are not a
// fixed stride apart in the given order.
inline std::optional<StagedButterfly> stage_butterfly(const Butterfly& butterfly, const Layout& layout, int64_t lanes) {
  StagedButterfly staged{butterfly, {}, 0, 0};
  if (!layout.own() && butterfly.parts.size() > 1) return std::nullopt;
  for (const Part& part : butterfly.parts) {
    if (part.factors.empty() ||
        !StageMaker(part, layout, butterfly.shared, butterfly.matrices, lanes).make(staged.stages)) {
      return std::nullopt;
    }
  }
  for (Stage& stage : staged.stages) {
    stage.packed = staged.packed;
    staged.packed += stage.tile_packed * int64_t(stage.tiles.size());
    staged.vectors = std::max(staged.vectors, stage.vectors);
  }
  return staged;
}

}  // namespace invertbench
