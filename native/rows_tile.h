// How rows are cut into tiles: enough elements that claiming a tile costs nothing beside it.
#pragma once

#include <cstdint>

namespace paceline {
namespace {

struct RowTiles {
  int64_t rows;   // in all
  int64_t width;  // elements a row costs

  int64_t per_tile() const { return width < kElements ? kElements / width : 1; }
  int64_t count() const { return (rows + per_tile() - 1) / per_tile(); }
  int64_t begin(int64_t tile) const { return tile * per_tile(); }
  int64_t end(int64_t tile) const { return begin(tile + 1) < rows ? begin(tile + 1) : rows; }

  static constexpr int64_t kElements = 8192;
};

}  // namespace
}  // namespace paceline
