#if defined(__x86_64__)

#include "rows_body.h"

namespace paceline::avx2 {

void norm(const NormArgs& args, int64_t tile, int) { norm_tile(args, tile); }
void gated(const GatedArgs& args, int64_t tile, int) { gated_tile(args, tile); }

}  // namespace paceline::avx2

#endif
