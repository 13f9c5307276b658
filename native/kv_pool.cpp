#include "kv_pool.h"

#include <cstring>

#include "kv_layout.h"

namespace paceline {
namespace {

constexpr size_t kUnitBytes = 4;

// The first `num_keys` (< 16) keys of a group. The last unit of values may be shared with keys that stay.
void copy_part(const KvPool& pool, const uint32_t* source, uint32_t* target, int64_t num_keys) {
  for (int64_t at = 0; at < key_units(pool); at += kGroupKeys)
    std::memcpy(target + at, source + at, num_keys * kUnitBytes);
  source += key_units(pool);
  target += key_units(pool);
  const int64_t width = padded_width(pool.head_width);
  const int64_t elements = unit_elements(pool.format);
  const int64_t whole = num_keys / elements * width;
  std::memcpy(target, source, whole * kUnitBytes);
  const uint32_t copied = (1u << (num_keys % elements * 32 / elements)) - 1;
  if (copied != 0)
    for (int64_t e = whole; e < whole + width; ++e) target[e] = (target[e] & ~copied) | (source[e] & copied);
  if (scale_units(pool) > 0) {
    const int64_t scales = value_units(pool) - scale_units(pool);
    std::memcpy(target + scales, source + scales, num_keys * kUnitBytes);
  }
}

}  // namespace

size_t kv_pool_bytes(const KvPool& pool) {
  const size_t groups =
      pool.num_layers * pool.num_blocks * pool.num_kv_heads * (pool.block_size / kGroupKeys);
  return groups * group_units(pool) * kUnitBytes;
}

void copy_block(const KvPool& pool, int64_t source, int64_t target, int64_t num_tokens) {
  const int64_t whole = num_tokens / kGroupKeys;
  for (int64_t layer = 0; layer < pool.num_layers; ++layer)
    for (int64_t head = 0; head < pool.num_kv_heads; ++head) {
      const uint32_t* from = group_at(pool, layer, source, head, 0);
      uint32_t* to = group_at(pool, layer, target, head, 0);
      const int64_t units = whole * group_units(pool);
      std::memcpy(to, from, units * kUnitBytes);
      if (num_tokens % kGroupKeys != 0) copy_part(pool, from + units, to + units, num_tokens % kGroupKeys);
    }
}

}  // namespace paceline
