#include "rotary_body.h"

namespace paceline::portable {

void rotary_store(const RotaryStoreArgs& args, int64_t tile, int) { rotary_store_tile(args, tile); }

}  // namespace paceline::portable
