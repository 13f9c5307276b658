#include "linear.h"

#include <algorithm>

#include "rows_tile.h"

namespace paceline {
namespace {

// A tile of a linear: a run of panels worth this many bytes when few rows make memory the limit, one panel by
// kTileRows rows when many make arithmetic the limit. The activations of kTileRows rows stay in the
// second-level cache.
constexpr int64_t kTileBytes = 32768;
constexpr int64_t kFewRows = 16;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t aligned(int64_t bytes) { return divide_up(bytes, 64) * 64; }

}  // namespace

bool takes_quantized(const PackedWeight& weight) {
  return weight.kind != WeightKind::F32 && weight.kind != WeightKind::BF16;
}

// The smallest weight group is 16, so offsets and sums need depth / 16 numbers a row at most.
size_t quantized_bytes(int64_t rows, int64_t depth) {
  const int64_t values = aligned(rows * depth);
  const int64_t scales = aligned(rows * depth / kActivationGroup * 4);
  const int64_t per_group = aligned(rows * depth / 16 * 4);
  return static_cast<size_t>(values + scales + 2 * per_group);
}

QuantizedRows quantized_view(void* buffer, int64_t rows, int64_t depth) {
  auto* at = static_cast<uint8_t*>(buffer);
  auto take = [&at](int64_t bytes) {
    uint8_t* piece = at;
    at += aligned(bytes);
    return piece;
  };
  QuantizedRows view;
  view.values = reinterpret_cast<int8_t*>(take(rows * depth));
  view.scales = reinterpret_cast<float*>(take(rows * depth / kActivationGroup * 4));
  view.offsets = reinterpret_cast<int32_t*>(take(rows * depth / 16 * 4));
  view.sums = reinterpret_cast<float*>(take(rows * depth / 16 * 4));
  return view;
}

Range quantize_rows(const QuantizeArgs& args, int64_t tile) {
  const RowTiles tiles{args.rows, args.depth};
  return {tiles.begin(tile), tiles.end(tile)};
}

int64_t quantize_tiles(const QuantizeArgs& args) { return RowTiles{args.rows, args.depth}.count(); }

namespace {

int64_t tile_panels(const LinearArgs& args) {
  if (args.rows > kFewRows) return 1;
  return std::max<int64_t>(1, kTileBytes / panel_bytes(*args.weight));
}

}  // namespace

int64_t linear_tiles(const LinearArgs& args) {
  return divide_up(num_panels(*args.weight), tile_panels(args)) * divide_up(args.rows, kTileRows);
}

// Panels vary fastest, so that neighbouring tiles read the same activations.
LinearTile linear_tile(const LinearArgs& args, int64_t tile) {
  const int64_t panels = tile_panels(args);
  const int64_t runs = divide_up(num_panels(*args.weight), panels);
  const int64_t panel = tile % runs * panels;
  const int64_t row = tile / runs * kTileRows;
  return {{row, std::min(row + kTileRows, args.rows)},
          {panel, std::min(panel + panels, num_panels(*args.weight))}};
}

}  // namespace paceline
