// Numbers of attention over an int8 KV cache.
//
// A key, value or query x of a token and head becomes round(x * 127 / m) with the scale m / 127, m its
// largest magnitude. A score is the integer sum of u * q less 128 times the sum of q (u = K + 128), times the
// scales of key and query. (Queries of 16 bits would take twice the instructions; KL from a float32 cache
// 0.0027 instead of 0.0031 nats, where bfloat16 has 0.0020.)
//
// The weights of a piece, times the scales of V, keep 16 bits as two terms, 256 * high + low, both unsigned:
// with 8, every key below 1/510 of the largest would be dropped, however many there are. |sum| < 2^31.
// (AVX2 keeps 15 bits as one term, which is what its instruction takes.)
//
// Internal linkage: included by code compiled for different instruction sets.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "kv_layout.h"
#include "rounding.h"

namespace paceline {
namespace {

constexpr float kLargestInt8 = 127;
constexpr float kLargestWeight = 256 * 255 + 255;
constexpr int32_t kKeyOffset = 128;
constexpr float kSmallestVector = 0x1p-100f;  // below it a vector is zero: the inverse would overflow

struct Int8Scale {
  float scale;
  float inverse;
};

// Such that `largest_step` steps of the scale are the largest magnitude. Infinity and NaN become a scale that
// makes every result NaN.
inline Int8Scale scale_of(float largest, float largest_step) {
  if (largest < kSmallestVector) return {0, 0};
  if (!(largest <= std::numeric_limits<float>::max())) return {std::numeric_limits<float>::quiet_NaN(), 0};
  return {largest / largest_step, largest_step / largest};
}

inline Int8Scale int8_scale(const float* x, int64_t width) {
  return scale_of(largest_magnitude(x, width), kLargestInt8);
}

// What lies behind the units of a packed query: 128 * its sum, and its scale.
struct Int8Query {
  int32_t offset;
  float scale;
};
constexpr int64_t kInt8QueryUnits = sizeof(Int8Query) / sizeof(uint32_t);

inline Int8Query int8_query(const uint32_t* units, int64_t key_units) {
  Int8Query query;
  std::memcpy(&query, units + key_units, sizeof query);
  return query;
}

inline void pack_int8_query(const float* q, int64_t head_width, uint32_t* units) {
  const int64_t key_units = (head_width + 3) / 4;
  const Int8Scale scale = int8_scale(q, head_width);
  int32_t sum = 0;
  std::memset(units, 0, key_units * sizeof *units);
  auto* values = reinterpret_cast<int8_t*>(units);
  for (int64_t e = 0; e < head_width; ++e) {
    values[e] = static_cast<int8_t>(round_to_even(q[e] * scale.inverse));
    sum += values[e];
  }
  const Int8Query query{kKeyOffset * sum, scale.scale};
  std::memcpy(units + key_units, &query, sizeof query);
}

}  // namespace
}  // namespace paceline
