#include "rows_body.h"

namespace paceline::portable {

void norm(const NormArgs& args, int64_t tile, int) { norm_tile(args, tile); }
void gated(const GatedArgs& args, int64_t tile, int) { gated_tile(args, tile); }

}  // namespace paceline::portable
