#if defined(__x86_64__)
#include "rotary_body.h"

namespace paceline::avx2 {

void rotary_store(const RotaryStoreArgs& args, int64_t tile, int) { rotary_store_tile(args, tile); }

}  // namespace paceline::avx2
#endif
