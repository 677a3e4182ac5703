// The positions of a tile's entries in an event, and copies between events and tiles.
#pragma once

#include "butterfly/cuda/plan.h"

namespace invertbench {

// Events in global memory, in the precision of the arithmetic or in bfloat16.
struct Events {
  void* data;
  bool half;
};

struct TileOrigin {
  int64_t row, column;  // Q and c of the tile's first entry
};

struct Place {
  int entry;      // of the tile
  int64_t event;  // its position in an event; -1 if masked
};

INVERTBENCH_DEVICE TileOrigin origin_of(const TileStage& stage, int tile) {
  const int down = tile / stage.column_tiles;
  return {int64_t(down) * stage.height, int64_t(tile - down * stage.column_tiles) * stage.width};
}

// Entry number `i` of a tile, counted in the best order for reading global memory: by channels, where the layout
// stores each of them contiguously, else in the order of the butterfly.
INVERTBENCH_DEVICE Place place(const TileStage& stage, const TileOrigin& origin, int i) {
  if (stage.plain) return {i, stage.start + origin.row * stage.columns + i};
  const bool whole = stage.width == stage.columns;
  const int length = whole ? stage.size : stage.width;
  const int segment = whole ? 0 : stage.by_segment.divide(i);
  int within = i - segment * length;
  int channel = 0, position = 0;
  if (stage.planes) {
    channel = stage.by_plane.divide(within);
    position = within - channel * int(stage.by_plane.divisor);
    const int colour = stage.by_groups.divide(channel), group = channel - colour * int(stage.groups);
    within = position * int(stage.by_channels.divisor) + group * int(stage.colours) + colour;
  }
  const int row = whole ? stage.by_width.divide(within) : segment;
  const int column = whole ? within - row * stage.width : within;
  Place found{segment * length + within, -1};
  if (origin.row + row >= stage.count || origin.column + column >= stage.columns) return found;
  const int64_t entry = stage.start + (origin.row + row) * stage.columns + origin.column + column;
  if (stage.positions == 0) {
    found.event = entry;
  } else if (stage.planes) {
    const int64_t first = stage.start + (origin.row + segment) * stage.columns + origin.column;
    found.event = channel * stage.positions + stage.by_channels.divide(int(first)) + position;
  } else {
    const int at = stage.by_channels.divide(int(entry));
    const int inside = int(entry) - at * int(stage.by_channels.divisor);
    const int group = inside / int(stage.colours), colour = inside - group * int(stage.colours);
    found.event = (colour * stage.groups + group) * stage.positions + at;
  }
  return found;
}

// Copy `stage.samples` samples from `sample` on into a tile; masked entries and samples past the last are zero.
template <class T, class Block, class Tile>
INVERTBENCH_DEVICE void load_tile(const Block& block, const TileStage& stage, const TileOrigin& origin, Events events,
                                  int64_t dim, int64_t batch, int64_t sample, Tile tile, int thread) {
  for (int i = thread; i < stage.size; i += block.threads()) {
    const Place at = place(stage, origin, i);
    for (int s = 0; s < stage.samples; ++s) {
      const int to = s * stage.pitch + padded(at.entry);
      if (at.event < 0 || sample + s >= batch) {
        tile[to] = T(0);
        continue;
      }
      const int64_t from = (sample + s) * dim + at.event;
      if (events.half) {
        tile[to] = T(widened(block.load(static_cast<const BFloat16*>(events.data) + from)));
      } else {
        block.copy(tile, to, static_cast<const T*>(events.data) + from);
      }
    }
  }
}

template <class T, class Block, class Tile>
INVERTBENCH_DEVICE void store_tile(const Block& block, const TileStage& stage, const TileOrigin& origin, Events events,
                                   int64_t dim, int64_t batch, int64_t sample, Tile tile, int thread) {
  for (int i = thread; i < stage.size; i += block.threads()) {
    const Place at = place(stage, origin, i);
    if (at.event < 0) continue;
    for (int s = 0; s < stage.samples && sample + s < batch; ++s) {
      const T value = tile[s * stage.pitch + padded(at.entry)];
      const int64_t to = (sample + s) * dim + at.event;
      if (events.half) {
        block.store(static_cast<BFloat16*>(events.data) + to, rounded(float(value)));
      } else {
        block.store(static_cast<T*>(events.data) + to, value);
      }
    }
  }
}

}  // namespace invertbench
