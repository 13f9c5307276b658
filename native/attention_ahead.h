// Fetching the keys and values a thread reads next while it computes with those it has.
//
// A decode meets every line of K and V for the first time, in groups scattered beyond what the hardware
// foresees, and computes for about as long as reading takes; so reading must never pause. Each step of a
// piece's scores fetches its share of the whole next piece, K and V: they then have the time of the rest of
// this piece to arrive. (Fetching V during its own piece's scores and the next K during the weighting of V
// left memory idle between the two: 64 decodes over int8 took 1.3 x the time.) Into the second-level cache;
// into the first it costs more than it brings.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention_layout.h"

namespace paceline {
namespace {

// Addresses of a piece's groups [begin, end), counted within the piece.
struct PieceGroups {
  const uint32_t* at[kPieceGroups];
  int64_t begin = 0;
  int64_t end = 0;

  int64_t count() const { return end - begin; }
};

class Ahead {
 public:
  // What of `next` is fetched while `current` is scored, whose keys have `key_units` each.
  Ahead(const PieceGroups& next, const PieceGroups& current, int64_t group_units, int64_t key_units)
      : next_(next), group_(next.begin), group_units_(group_units) {
    const int64_t lines = next.count() * ((group_units + kLineUnits - 1) / kLineUnits);
    const int64_t steps = std::max<int64_t>(1, current.count() * key_units);
    lines_a_step_ = (lines + steps - 1) / steps;
  }

  // The share of one unit of `num_groups` groups' keys.
  void fetch(int64_t num_groups) {
    for (int64_t i = 0; i < num_groups * lines_a_step_ && group_ < next_.end; ++i) {
      __builtin_prefetch(next_.at[group_] + unit_, 0, kSecondLevel);
      unit_ += kLineUnits;
      if (unit_ >= group_units_) unit_ = 0, ++group_;
    }
  }

 private:
  static constexpr int64_t kLineUnits = 16;
  static constexpr int kSecondLevel = 2;
  const PieceGroups& next_;
  int64_t group_;
  int64_t unit_ = 0;
  int64_t group_units_;
  int64_t lines_a_step_;
};

}  // namespace
}  // namespace paceline
