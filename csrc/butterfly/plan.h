// Butterfly factors as index arithmetic: which entries pair, and which 2x2 matrix of the weight maps them.
//
// A part of `size` entries has factors of half size h = size / 2^level. Entry n with n / h even pairs with n + h; their
// matrix is number (n / 2h) h + n mod h of the factor, or n / 2h where the pairs of a block share one. The weight is
// (2, 2, P): the entries a, b, c, d of y0 = a x0 + b x1, y1 = c x0 + d x1 lie P apart.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#if defined(__CUDACC__)
#define INVERTBENCH_HOST_DEVICE __host__ __device__
#else
#define INVERTBENCH_HOST_DEVICE
#endif

namespace invertbench {

struct Factor {
  int64_t half;    // h
  int64_t weight;  // offset of its matrices among the P
};

struct Part {
  int64_t start;  // of its entries among the D
  int64_t size;
  int64_t depth;  // the deepest level: its entries form 2^depth runs of size / 2^depth that no factor distinguishes
  std::vector<Factor> factors;  // first applied first
};

struct Butterfly {
  int64_t dim = 0;       // D
  int64_t matrices = 0;  // P
  bool shared = false;
  std::vector<Part> parts;
};

// The event, channels first, in the order of the butterfly: channel j S + s of position p is entry (p S + s) J + j.
struct Layout {
  int64_t colours = 1, groups = 1, positions = 0;  // J, S and n; positions 0 for an event in its own order
  bool own() const { return positions == 0; }
};

INVERTBENCH_HOST_DEVICE inline int64_t matrix_of(const Factor& factor, int64_t entry, bool shared) {
  const int64_t block = entry / (2 * factor.half);
  return factor.weight + (shared ? block : block * factor.half + entry % factor.half);
}

// Parse a flat list with, for each part: its size, the number of its levels, its levels.
inline Butterfly parse_butterfly(const int64_t* plan, size_t length, bool shared) {
  Butterfly found;
  found.shared = shared;
  const auto check = [](bool right) {
    if (!right) throw std::invalid_argument("butterfly: the plan is not a list of size, count, levels for each part");
  };
  for (size_t at = 0; at < length;) {
    check(length - at >= 2 && plan[at] >= 1 && plan[at + 1] >= 0 && uint64_t(plan[at + 1]) <= length - at - 2);
    Part part{found.dim, plan[at], 0, {}};
    const int64_t count = plan[at + 1];
    for (int64_t i = 0; i < count; ++i) {
      const int64_t level = plan[at + 2 + i];
      check(level >= 1 && level < 62 && part.size % (int64_t(1) << level) == 0);
      const int64_t half = part.size >> level;
      part.factors.push_back({half, found.matrices});
      part.depth = level > part.depth ? level : part.depth;
      found.matrices += shared ? part.size / (2 * half) : part.size / 2;
    }
    found.dim += part.size;
    found.parts.push_back(std::move(part));
    at += 2 + count;
  }
  return found;
}

// Return the factors in reverse order: those of the inverse, with inverted matrices in the same places.
inline void reverse(Butterfly& butterfly) {
  for (Part& part : butterfly.parts) {
    const std::vector<Factor> forward(part.factors);
    for (size_t i = 0; i < forward.size(); ++i) part.factors[i] = forward[forward.size() - 1 - i];
  }
}

}  // namespace invertbench
