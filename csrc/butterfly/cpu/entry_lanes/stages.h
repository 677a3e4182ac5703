// Apply a butterfly with its entries side by side in vectors, in their memory order.
//
// A factor pairs entries a fixed stride apart. Where that is a multiple of the L numbers of a vector (a wide level)
// whole vectors pair, and so do the matrices between them. The narrow levels need L blocks of B consecutive entries at once:
// transposed so that every vector has one entry of each block, they pair whole vectors too.
//
// A stage is a run of levels that act within small tiles of vectors, so that the matrices of a tile stay in the first
// cache while all samples of a chunk go through it. The weight is packed once per call, in the order of its use.
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

constexpr int64_t TILE_VECTORS = 32;   // vectors in a tile of a wide stage
constexpr int64_t MOST_VECTORS = 256;  // the same for a narrow one, which depends on the odd factor of D
constexpr int MOST_LEVELS = 8;         // levels in a stage
constexpr int64_t SAMPLES = 8;         // processed together in a sweep
constexpr int64_t SAMPLES_BACK = 4;    // the same, backward
constexpr int MOST_TOGETHER = 3;       // levels on vectors that stay in registers
constexpr size_t MOST_BACK = 2;        // the same, backward, beside the sums of the gradients of their matrices

struct Level {
  Factor factor;
  int64_t stride;  // between the entries of a pair, in memory
  int64_t step;    // between the matrices of neighbouring lanes of a vector
  int64_t count;   // of its matrices
};

// Some levels on groups of vectors in registers, and the transposition of L vectors before or after them.
struct Sweep {
  enum Turn { none, before, after };
  struct Group {
    int64_t from, to;  // positions of its first vector
    int64_t packed;    // offset of its matrices in those of the tile
  };
  int levels = 0;
  bool up = false;  // the smallest stride first
  Turn turn = none;
  bool from_event = false, to_event = false;  // else the vectors of a tile follow each other in scratch memory
  std::vector<int64_t> from_rows, to_rows;    // of the vectors of a group, from its first
  std::vector<Group> groups;
  std::vector<int64_t> pairs;  // of a step: the offsets of the matrices of every pair of every group, level by level
};

struct PackedPair {  // the matrices between two vectors: a, b, c, d of every lane
  int level;
  int64_t number;  // of the first lane's matrix, from the first of the tile
};

struct Stage {
  bool first = true;                  // of its part
  bool wide = false;                  // whole vectors pair in all of its levels
  std::vector<Level> levels;
  int64_t vectors = 0;                // of a tile
  std::vector<int64_t> places;        // of the vectors in the event, from the tile's first
  std::vector<int64_t> tiles;         // their offsets in the event
  std::vector<int64_t> numbers;       // of the first matrix of every tile and level in the weight
  std::vector<PackedPair> pairs;      // of a tile, in packed order
  std::vector<Sweep> sweeps;          // from the event and back to it
  std::vector<Sweep> steps;           // the same, one or two levels at a time, for the backward pass
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
  StageMaker(const Part& part, const Layout& layout, bool shared, int64_t lanes)
      : part_(part), layout_(layout), shared_(shared), lanes_(lanes) {
    while ((int64_t(1) << turned_levels_) < lanes) ++turned_levels_;
  }

  // Append to `stages`; return false if vectors of so many lanes are not usable.
  bool make(std::vector<Stage>& stages) {
    if (!find_levels()) return false;
    for (size_t at = 0; at < levels_.size();) {
      const bool narrow = leads_to_narrow(at);
      const size_t end = narrow ? end_of_narrow(at) : end_of_wide(at);
      Stage stage;
      stage.first = at == 0;
      stage.wide = !narrow;
      stage.levels.assign(levels_.begin() + at, levels_.begin() + end);
      if (narrow) lay_narrow_tiles(stage);
      else lay_wide_tiles(stage);
      find_sweeps(stage);
      for (const int64_t tile : stage.tiles) {
        for (const Level& level : stage.levels) {
          stage.numbers.push_back(level.factor.weight + number(level.factor, tile));
        }
      }
      for (int64_t& tile : stage.tiles) tile += part_.start;
      stages.push_back(std::move(stage));
      at = end;
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
      levels_.push_back({factor, stride, 0, part_.size / (shared_ ? 2 * half : 2)});
    }
    block_ = lanes_;
    for (const Level& level : levels_) {
      if (is_narrow(level)) block_ = std::lcm(block_, 2 * level.stride);
    }
    const int64_t whole = layout_.own() ? part_.size : n;
    bool narrow = false;
    for (Level& level : levels_) {
      narrow = narrow || is_narrow(level);
      level.step = number(level.factor, is_narrow(level) ? block_ : 1);
    }
    return !narrow || (whole % (block_ * lanes_) == 0 && block_ <= MOST_VECTORS);
  }

  bool is_narrow(const Level& level) const { return level.stride % lanes_ != 0; }

  bool fits_narrow(const Level& level) const {
    return is_narrow(level) || (level.stride % block_ == 0 && block_ * lanes_ % (2 * level.stride) == 0);
  }

  size_t end_of_narrow(size_t at) const {
    const size_t most = std::min(levels_.size(), at + MOST_LEVELS);
    while (at < most && fits_narrow(levels_[at])) ++at;
    return at;
  }

  bool leads_to_narrow(size_t at) const {
    for (const size_t end = end_of_narrow(at); at < end; ++at) {
      if (is_narrow(levels_[at])) return true;
    }
    return false;
  }

  size_t end_of_wide(size_t at) const {
    const size_t most = std::min(levels_.size(), at + MOST_LEVELS);
    std::vector<int64_t> strides{levels_[at].stride};  // from the largest on
    for (++at; at < most && !is_narrow(levels_[at]) && !leads_to_narrow(at); ++at) {
      const int64_t stride = levels_[at].stride;
      const auto next = std::lower_bound(strides.begin(), strides.end(), stride, std::greater<>());
      if (next != strides.end() && *next == stride) continue;
      const bool nested = (next == strides.end() || stride % (2 * *next) == 0) &&
                          (next == strides.begin() || *(next - 1) % (2 * stride) == 0);
      if (!nested || int64_t(2) << strides.size() > TILE_VECTORS) break;
      strides.insert(next, stride);
    }
    return at;
  }

  // L blocks of B entries each.
  void lay_narrow_tiles(Stage& stage) {
    stage.vectors = block_;
    for (int64_t v = 0; v < block_; ++v) stage.places.push_back(v * lanes_);
    for (int64_t at = 0; at < part_.size; at += block_ * lanes_) stage.tiles.push_back(at);
    strides_.clear();
    for (const Level& level : stage.levels) strides_.push_back(is_narrow(level) ? level.stride : level.stride / lanes_);
  }

  // A row for every choice of entries along the strides; some neighbouring vectors of each.
  void lay_wide_tiles(Stage& stage) {
    std::vector<int64_t> strides;
    for (const Level& level : stage.levels) strides.push_back(level.stride);
    std::sort(strides.begin(), strides.end(), std::greater<>());
    strides.erase(std::unique(strides.begin(), strides.end()), strides.end());
    const int64_t rows = int64_t(1) << strides.size();
    const int64_t run = layout_.own() ? strides.back() : std::min(strides.back(), layout_.positions);
    int64_t width = std::max<int64_t>(TILE_VECTORS / rows, 1);
    while (run % (width * lanes_)) --width;
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
      int64_t stride = width << (strides.size() - 1);
      for (size_t i = 0; strides[i] != level.stride; ++i) stride /= 2;
      strides_.push_back(stride);
    }
  }

  // The vectors v of a tile from which no stride leads back: the first of every group.
  std::vector<int64_t> first_of_groups(const Stage& stage, const std::vector<int64_t>& strides) const {
    std::vector<int64_t> found;
    for (int64_t v = 0; v < stage.vectors; ++v) {
      bool first = true;
      for (const int64_t stride : strides) first = first && v / stride % 2 == 0;
      if (first) found.push_back(v);
    }
    return found;
  }

  // Levels first, ..., first + count - 1 of a stage on vectors in scratch memory.
  Sweep levels_sweep(const Stage& stage, size_t first, size_t count) const {
    std::vector<int64_t> strides(strides_.begin() + first, strides_.begin() + first + count);
    Sweep sweep;
    sweep.levels = int(count);
    sweep.up = count > 1 && strides[1] > strides[0];
    if (sweep.up) std::reverse(strides.begin(), strides.end());
    for (int64_t row = 0; row < int64_t(1) << count; ++row) {
      int64_t v = 0;
      for (size_t i = 0; i < count; ++i) v += (row >> (count - 1 - i) & 1) * strides[i];
      sweep.from_rows.push_back(v);
    }
    sweep.to_rows = sweep.from_rows;
    for (const int64_t v : first_of_groups(stage, strides)) sweep.groups.push_back({v, v, 0});
    return sweep;
  }

  // Vectors of L entries of a block to vectors of an entry of L blocks each, or back.
  Sweep turn_sweep(bool back) const {
    Sweep sweep;
    sweep.turn = Sweep::after;
    for (int64_t i = 0; i < lanes_; ++i) {
      sweep.from_rows.push_back(i * (block_ / lanes_));
      sweep.to_rows.push_back(i);
    }
    for (int64_t v = 0; v < block_ / lanes_; ++v) sweep.groups.push_back({v, v * lanes_, 0});
    if (back) {
      std::swap(sweep.from_rows, sweep.to_rows);
      for (Sweep::Group& group : sweep.groups) std::swap(group.from, group.to);
    }
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

  void find_sweeps(Stage& stage) const {
    const size_t count = stage.levels.size();
    bool turned = false;
    const auto turn = [&] {
      Sweep sweep = turn_sweep(turned);
      stage.steps.push_back(sweep);
      Sweep* const last = stage.sweeps.empty() ? nullptr : &stage.sweeps.back();
      if (last && last->turn == Sweep::none && last->levels == turned_levels_ && last->from_rows == sweep.from_rows) {
        last->turn = Sweep::after;
        last->to_rows = sweep.to_rows;
        for (size_t i = 0; i < sweep.groups.size(); ++i) last->groups[i].to = sweep.groups[i].to;
      } else {
        stage.sweeps.push_back(std::move(sweep));
      }
      turned = !turned;
    };
    std::vector<int64_t> packed_at(count * stage.vectors);
    for (size_t at = 0; at < count;) {
      if (is_narrow(stage.levels[at]) != turned) turn();
      size_t end = at + 1;  // the longest run of levels of one kind, with strides that only fall or only grow
      while (end < count && is_narrow(stage.levels[end]) == turned && strides_[end] != strides_[end - 1] &&
             (end == at + 1 || (strides_[end] > strides_[end - 1]) == (strides_[at + 1] > strides_[at]))) {
        ++end;
      }
      if (end - at != size_t(turned_levels_)) {
        const size_t left = end - at;
        end = at + (left == MOST_TOGETHER + 1 ? 2 : std::min<size_t>(left, MOST_TOGETHER));
      }
      Sweep sweep = levels_sweep(stage, at, end - at);
      for (Sweep::Group& group : sweep.groups) {
        group.packed = int64_t(stage.pairs.size()) * 4 * lanes_;
        for (size_t i = at; i < end; ++i) {
          for (size_t row = 0; row < sweep.from_rows.size(); ++row) {
            const int64_t v = group.from + sweep.from_rows[row];
            if (v / strides_[i] % 2) continue;
            packed_at[i * stage.vectors + v] = int64_t(stage.pairs.size()) * 4 * lanes_;
            const int64_t place = turned ? v : stage.places[v];
            stage.pairs.push_back({int(i), number(stage.levels[i].factor, place)});
          }
        }
      }
      for (size_t i = at; i < end; i += MOST_BACK) {
        Sweep step = levels_sweep(stage, i, std::min(MOST_BACK, end - i));
        for (const Sweep::Group& group : step.groups) {
          for (size_t level = i; level < i + size_t(step.levels); ++level) {
            for (const int64_t row : step.from_rows) {
              const int64_t v = group.from + row;
              if (v / strides_[level] % 2 == 0) step.pairs.push_back(packed_at[level * stage.vectors + v]);
            }
          }
        }
        stage.steps.push_back(std::move(step));
      }
      Sweep* const last = stage.sweeps.empty() ? nullptr : &stage.sweeps.back();
      if (last && last->levels == 0 && sweep.levels == turned_levels_ && last->to_rows == sweep.from_rows) {
        sweep.turn = Sweep::before;
        sweep.from_rows = last->from_rows;
        for (size_t i = 0; i < sweep.groups.size(); ++i) sweep.groups[i].from = last->groups[i].from;
        *last = std::move(sweep);
      } else {
        stage.sweeps.push_back(std::move(sweep));
      }
      at = end;
    }
    if (turned) turn();
    place_sweeps(stage, stage.sweeps);
    place_sweeps(stage, stage.steps);
    stage.tile_packed = int64_t(stage.pairs.size()) * 4 * lanes_;
  }

  const Part& part_;
  const Layout& layout_;
  const bool shared_;
  const int64_t lanes_;
  int turned_levels_ = 0;  // log2 L
  int64_t block_ = 0;      // B, a multiple of L and of twice every narrow stride
  std::vector<Level> levels_;
  std::vector<int64_t> strides_;  // of the levels of a stage, in vectors of a tile
};

// Return nothing if vectors of so many lanes are not usable: a part is too small, or pairs are not a
// fixed stride apart in the given order.
inline std::optional<StagedButterfly> stage_butterfly(const Butterfly& butterfly, const Layout& layout, int64_t lanes) {
  StagedButterfly staged{butterfly, {}, 0, 0};
  if (!layout.own() && butterfly.parts.size() > 1) return std::nullopt;
  for (const Part& part : butterfly.parts) {
    if (part.factors.empty() || !StageMaker(part, layout, butterfly.shared, lanes).make(staged.stages)) {
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
