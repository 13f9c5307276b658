// The walk of one tile of a linear, shared by the vector instruction sets: which panels, which rows, which
// format of weights. The arithmetic is a Kernel's (linear_avx2.cpp, linear_avx512.cpp):
//
//   block_rows(terms)  rows summed at a time, at most
//   kStreamedRows      with more the next panel is prefetched
//   template <class F, int kTerms, int R> static void block(at, panel)  R rows of a panel of format F, whose
//                      activations have kTerms terms (2: LinearArgs.residual is summed too)
//
// A panel's records stream by once per block of rows: from memory the first time, then from the nearest
// cache. With more than kStreamedRows rows (a term counts as one) the next panel is prefetched meanwhile, so
// that memory works during the arithmetic: into the second-level cache (the first holds this panel; with both
// in it 8 rows of int8 ran at 60 %). With fewer, memory is the limit and the processor's own prefetching is
// best.
#pragma once

#include <immintrin.h>

#include "always_inline.h"
#include "linear.h"

namespace paceline {
namespace {

constexpr int64_t kLine = 64;

// One panel and a block of rows. `next` is prefetched, `next_lines` cache lines for each record.
struct PanelRows {
  const LinearArgs& args;
  const uint8_t* panel;
  const uint8_t* next;
  int64_t next_lines;
  int64_t row;
};

// INT8 and INT4: records of values, scales and (perhaps) minimums, the latter two float16 or (wide) float32.
template <bool kNibbles, int kGroup, bool kMinimum, bool kWide>
struct Format {
  static constexpr bool nibbles = kNibbles;
  static constexpr int group = kGroup;
  static constexpr bool minimum = kMinimum;
  static constexpr bool wide = kWide;
  // 4-bit numbers with a minimum are summed as they are; the others are centred (pack.h).
  static constexpr bool centred = !kNibbles || !kMinimum;
  static constexpr int values = kGroup * kPanelOutputs / (kNibbles ? 2 : 1);
  static constexpr int coefficients = kPanelOutputs * (kWide ? 4 : 2);
  static constexpr int record = values + coefficients * (kMinimum ? 2 : 1);
};

// CHANNEL: values alone, one scale an output at the end of the panel. `group` shares an activation scale.
template <int kGroup>
struct ChannelFormat {
  static constexpr bool nibbles = false;
  static constexpr int group = kGroup;
  static constexpr bool centred = true;
  static constexpr int values = kGroup * kPanelOutputs;
  static constexpr int record = values;
};

template <class F>
constexpr bool is_channel = false;
template <int kGroup>
constexpr bool is_channel<ChannelFormat<kGroup>> = true;

// F32 and BF16: a record is one depth position.
template <bool kBfloat>
struct FloatFormat {
  static constexpr bool bfloat = kBfloat;
  static constexpr int group = 1;
  static constexpr int record = kPanelOutputs * (kBfloat ? 2 : 4);
};

template <class F>
constexpr bool is_float = F::group == 1;

template <class F>
constexpr bool is_nibbles = requires { requires F::nibbles; };
template <class F>
constexpr bool has_minimum = requires { requires F::minimum; };

ALWAYS_INLINE void prefetch(const uint8_t*& next, int64_t lines) {
  for (int64_t i = 0; i < lines; ++i, next += kLine)
    _mm_prefetch(reinterpret_cast<const char*>(next), _MM_HINT_T1);
}

// The lines that a block will write, so that the stores at its end don't wait for them (10 % with 512 rows).
template <int R>
ALWAYS_INLINE void prefetch_results(const PanelRows& at, int64_t panel) {
  for (int r = 0; r < R; ++r) {
    const float* y = at.args.y + (at.row + r) * at.args.weight->outputs + panel * kPanelOutputs;
    _mm_prefetch(reinterpret_cast<const char*>(y), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(y + kPanelOutputs / 2), _MM_HINT_T0);
  }
}

template <class Kernel, class F, int kTerms, int R = Kernel::block_rows(kTerms)>
void block_of(int64_t rows, const PanelRows& at, int64_t panel) {
  if constexpr (R > 1) {
    if (rows < R) return block_of<Kernel, F, kTerms, R - 1>(rows, at, panel);
  }
  Kernel::template block<F, kTerms, R>(at, panel);
}

// Rows in blocks of nearly equal size: 8 rows are 4 + 4, not 6 + 2.
template <class Kernel, class F, int kTerms>
void tile_of_terms(const LinearArgs& args, const LinearTile& tile) {
  const PackedWeight& weight = *args.weight;
  const int64_t bytes = panel_bytes(weight);
  const int64_t last_panel = num_panels(weight) - 1;
  const int64_t num_rows = tile.rows.end - tile.rows.begin;
  const int64_t blocks = (num_rows + Kernel::block_rows(kTerms) - 1) / Kernel::block_rows(kTerms);
  const int64_t lines = (F::record + kLine * blocks - 1) / (kLine * blocks);
  const int64_t share = lines * (weight.depth / F::group) * kLine;
  const bool streams = num_rows * kTerms > Kernel::kStreamedRows;
  for (int64_t panel = tile.panels.begin; panel < tile.panels.end; ++panel) {
    const uint8_t* data = weight.data + panel * bytes;
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t row = tile.rows.begin + num_rows * b / blocks;
      const int64_t end = tile.rows.begin + num_rows * (b + 1) / blocks;
      const bool left = panel < last_panel && b * share < bytes;
      const PanelRows at{args, data, data + bytes + b * share, left && streams ? lines : 0, row};
      block_of<Kernel, F, kTerms>(end - row, at, panel);
    }
  }
}

template <class Kernel, class F>
void tile_of(const LinearArgs& args, const LinearTile& tile) {
  if constexpr (!is_float<F>) {
    if (args.residual.values != nullptr) return tile_of_terms<Kernel, F, 2>(args, tile);
  }
  tile_of_terms<Kernel, F, 1>(args, tile);
}

template <class Kernel, bool kMinimum, bool kWide>
void int8_tile(const LinearArgs& args, const LinearTile& tile) {
  if (args.weight->group == 16) return tile_of<Kernel, Format<false, 16, kMinimum, kWide>>(args, tile);
  return tile_of<Kernel, Format<false, 32, kMinimum, kWide>>(args, tile);
}

template <class Kernel>
void int4_tile(const LinearArgs& args, const LinearTile& tile) {
  if (!args.weight->has_minimum) return tile_of<Kernel, Format<true, 32, false, false>>(args, tile);
  if (args.weight->wide_scales) return tile_of<Kernel, Format<true, 32, true, true>>(args, tile);
  return tile_of<Kernel, Format<true, 32, true, false>>(args, tile);
}

template <class Kernel>
void walk_tile(const LinearArgs& args, int64_t index) {
  const LinearTile tile = linear_tile(args, index);
  const PackedWeight& weight = *args.weight;
  const bool wide = weight.wide_scales;
  switch (weight.kind) {
    case WeightKind::F32:
      return tile_of<Kernel, FloatFormat<false>>(args, tile);
    case WeightKind::BF16:
      return tile_of<Kernel, FloatFormat<true>>(args, tile);
    case WeightKind::INT4:
      return int4_tile<Kernel>(args, tile);
    case WeightKind::CHANNEL:
      if (weight.group == 64) return tile_of<Kernel, ChannelFormat<64>>(args, tile);
      return tile_of<Kernel, ChannelFormat<32>>(args, tile);
    case WeightKind::INT8:
      if (weight.has_minimum)
        return wide ? int8_tile<Kernel, true, true>(args, tile) : int8_tile<Kernel, true, false>(args, tile);
      return wide ? int8_tile<Kernel, false, true>(args, tile) : int8_tile<Kernel, false, false>(args, tile);
  }
}

}  // namespace
}  // namespace paceline
