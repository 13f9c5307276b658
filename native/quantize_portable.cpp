// Activation quantization, plainly: the check of the vector versions, bit for bit.
#include <algorithm>

#include "linear.h"
#include "rounding.h"

namespace paceline::portable {
namespace {

// The values at `at` of a tensor that share a scale, x, go to `out`; x becomes what is left of them.
void quantize_group(float* x, int64_t at, int32_t group, const QuantizedRows& out) {
  const int64_t count = activation_group(group);
  const float largest = largest_magnitude(x, count);
  const bool zero = largest < kSmallestMagnitude;
  const float inverse = zero ? 0.0f : 127.0f / largest;
  const float scale = zero ? 0.0f : largest * (1.0f / 127.0f);
  for (int64_t i = 0; i < count; ++i) {
    out.values[at + i] = static_cast<int8_t>(round_to_even(x[i] * inverse));
    x[i] -= static_cast<float>(out.values[at + i]) * scale;
  }
  out.scales[at / count] = scale;
  for (int64_t start = at; start < at + count; start += group) {
    int32_t sum = 0;
    for (int64_t i = start; i < start + group; ++i) sum += out.values[i];
    out.offsets[start / group] = -128 * sum;
    out.sums[start / group] = static_cast<float>(sum) * scale;
  }
}

}  // namespace

void quantize(const QuantizeArgs& args, int64_t tile, int /*thread*/) {
  const Range rows = quantize_rows(args, tile);
  const int64_t count = activation_group(args.group);
  for (int64_t at = rows.begin * args.depth; at < rows.end * args.depth; at += count) {
    float x[kLargestGroup];
    std::copy_n(args.x + at, count, x);
    quantize_group(x, at, args.group, args.out);
    if (args.residual.values != nullptr) quantize_group(x, at, args.group, args.residual);
  }
}

}  // namespace paceline::portable
