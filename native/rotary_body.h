// rotary_store, written once and compiled for each instruction set; the loops are plain enough to be
// vectorized, and without contraction both give the same bits. A tile is a few tokens, all heads. Traffic:
// qkv in, q out, K and V out once; K's scatter stays in the first-level cache, as 16 neighbouring keys share
// its lines.
#pragma once

#include <cstring>

#include "attention_int8.h"
#include "attention_layout.h"

namespace paceline {
namespace {

// Never infinite or NaN: attention multiplies values it must not see by zero, and the next owner of a block
// must not meet this one's overflow. The owner's own NaN still reaches its result through q.
inline float finite(float x) {
  constexpr float kLargest = 3.3895314e38f;  // bfloat16's
  x = x < kLargest ? x : kLargest;
  return x > -kLargest ? x : -kLargest;
}

// Round to nearest even.
inline uint32_t bfloat16_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

inline void rotate(const float* x, const float* cos, const float* sin, int64_t half, int64_t head_width,
                   float* out) {
  for (int64_t i = 0; i < half; ++i) out[i] = x[i] * cos[i] - x[i + half] * sin[i];
  for (int64_t i = 0; i < half; ++i) out[i + half] = x[i + half] * cos[i] + x[i] * sin[i];
  for (int64_t i = 2 * half; i < head_width; ++i) out[i] = x[i];
}

// A vector to store in int8, made finite, and its scale.
struct Int8Vector {
  float x[kMaxHeadWidth];
  Int8Scale scale;

  Int8Vector(const float* source, int64_t width) {
    for (int64_t e = 0; e < width; ++e) x[e] = finite(source[e]);
    scale = int8_scale(x, width);
  }
  int32_t step(int64_t e) const { return round_to_even(x[e] * scale.inverse); }
};

// A key's scale lies in the row behind its units.
inline void store_int8_key(const KvPool& pool, const float* x, uint32_t* group, int64_t lane) {
  const int64_t units = vector_units(pool);
  const Int8Vector key(x, pool.head_width);
  for (int64_t u = 0; u < units; ++u) {
    uint32_t unit = 0;
    for (int64_t e = 4 * u; e < 4 * u + 4 && e < pool.head_width; ++e)
      unit |= static_cast<uint32_t>(key.step(e) + kKeyOffset) << (e % 4 * 8);
    group[u * kGroupKeys + lane] = unit;
  }
  std::memcpy(group + units * kGroupKeys + lane, &key.scale.scale, sizeof key.scale.scale);
}

// Four neighbouring keys share a unit: write bytes only.
inline void store_int8_value(const KvPool& pool, const float* x, uint32_t* values, int64_t lane) {
  const int64_t width = padded_width(pool.head_width);
  const Int8Vector value(x, pool.head_width);
  auto* bytes = reinterpret_cast<int8_t*>(values + lane / 4 * width) + lane % 4;
  for (int64_t e = 0; e < pool.head_width; ++e) bytes[4 * e] = static_cast<int8_t>(value.step(e));
  std::memcpy(values + value_units(pool) - scale_units(pool) + lane, &value.scale.scale, sizeof(float));
}

inline void store_key(const KvPool& pool, const float* x, uint32_t* group, int64_t lane) {
  if (pool.format == KvFormat::kInt8) return store_int8_key(pool, x, group, lane);
  if (pool.format == KvFormat::kFloat32) {
    float* keys = reinterpret_cast<float*>(group) + lane;
    for (int64_t e = 0; e < pool.head_width; ++e) keys[e * kGroupKeys] = finite(x[e]);
    return;
  }
  uint32_t* keys = group + lane;
  for (int64_t e = 0; e < pool.head_width; e += 2)
    keys[e / 2 * kGroupKeys] = bfloat16_bits(finite(x[e])) | bfloat16_bits(finite(x[e + 1])) << 16;
}

// Two neighbouring keys share units, and another thread may be storing the other one: write halves only.
inline void store_value(const KvPool& pool, const float* x, uint32_t* group, int64_t lane) {
  const int64_t width = padded_width(pool.head_width);
  if (pool.format == KvFormat::kInt8) return store_int8_value(pool, x, group + key_units(pool), lane);
  if (pool.format == KvFormat::kFloat32) {
    float* values = reinterpret_cast<float*>(group + key_units(pool)) + lane * width;
    for (int64_t e = 0; e < pool.head_width; ++e) values[e] = finite(x[e]);
    return;
  }
  uint16_t* values = reinterpret_cast<uint16_t*>(group + key_units(pool) + lane / 2 * width) + lane % 2;
  for (int64_t e = 0; e < pool.head_width; ++e)
    values[2 * e] = static_cast<uint16_t>(bfloat16_bits(finite(x[e])));
}

inline void store_token(const RotaryStoreArgs& args, int64_t row, int64_t token) {
  const KvPool& pool = *args.pool;
  const int64_t width = pool.head_width;
  const int64_t position = args.rows->positions[token];
  const float* cos = args.cos + position * args.table_width;
  const float* sin = args.sin + position * args.table_width;
  const float* x = args.qkv + token * (args.num_heads + 2 * pool.num_kv_heads) * width;
  float* q = args.q + token * args.num_heads * width;
  for (int64_t head = 0; head < args.num_heads; ++head)
    rotate(x + head * width, cos, sin, args.table_width, width, q + head * width);

  const int32_t* table = args.rows->block_tables + args.rows->slots[row] * args.rows->table_stride;
  const int64_t block = table[position / pool.block_size];
  const int64_t group_index = position % pool.block_size / kGroupKeys;
  const float* keys = x + args.num_heads * width;
  const float* values = keys + pool.num_kv_heads * width;
  float rotated[kMaxHeadWidth];
  for (int64_t head = 0; head < pool.num_kv_heads; ++head) {
    uint32_t* group = group_at(pool, args.layer_index, block, head, group_index);
    rotate(keys + head * width, cos, sin, args.table_width, width, rotated);
    store_key(pool, rotated, group, position % kGroupKeys);
    store_value(pool, values + head * width, group, position % kGroupKeys);
  }
}

// The row that holds `token`: the last one that starts at or before it and is not empty.
inline int64_t row_of(const StepRows& rows, int64_t token) {
  int64_t low = 0, high = rows.num_rows;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (rows.row_starts[middle] <= token ? low : high) = middle;
  }
  return low;
}

inline void rotary_store_tile(const RotaryStoreArgs& args, int64_t tile) {
  const StepRows& rows = *args.rows;
  const int64_t first = tile * kRotaryTokens;
  int64_t row = row_of(rows, first);
  for (int64_t token = first; token < first + kRotaryTokens && token < rows.num_tokens; ++token) {
    while (rows.row_starts[row + 1] <= token) ++row;
    store_token(args, row, token);
  }
}

}  // namespace
}  // namespace paceline
