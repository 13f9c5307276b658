#include "rows.h"

#include <cstring>

#include "rows_tile.h"

namespace paceline {

int64_t embed_tiles(const EmbedArgs& args) { return RowTiles{args.rows, args.table->depth}.count(); }
int64_t norm_tiles(const NormArgs& args) { return RowTiles{args.rows, args.width}.count(); }
int64_t gated_tiles(const GatedArgs& args) { return RowTiles{args.rows, 2 * args.width}.count(); }
int64_t take_rows_tiles(const TakeRowsArgs& args) { return RowTiles{args.rows, args.width}.count(); }

void embed(const EmbedArgs& args, int64_t tile, int) {
  const RowTiles tiles{args.rows, args.table->depth};
  for (int64_t row = tiles.begin(tile); row < tiles.end(tile); ++row)
    unpack_row(*args.table, args.tokens[row], args.y + row * args.table->depth);
}

void take_rows(const TakeRowsArgs& args, int64_t tile, int) {
  const RowTiles tiles{args.rows, args.width};
  for (int64_t row = tiles.begin(tile); row < tiles.end(tile); ++row)
    std::memcpy(args.y + row * args.width, args.x + args.indices[row] * args.width,
                args.width * sizeof(float));
}

}  // namespace paceline
