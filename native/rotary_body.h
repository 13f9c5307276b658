// rotary_store, written once and compiled for each instruction set; the loops are plain enough to be
// vectorized, and without contraction all give the same bits. A tile is a few tokens, all heads. Traffic:
// qkv in, q out, K and V out once; K's scatter stays in the first-level cache, as 16 neighbouring keys share
// its lines.
//
// A key or value is first packed as the pool's format has its elements, in order: those are the units of K.
// Four tokens of a row at neighbouring lanes from a multiple of four fill whole units of V in every format
// and are stored together. A token alone writes its own bytes only: another thread may be storing the rest.
#pragma once

#include <bit>
#include <cstring>
#include <type_traits>

#include "attention_int8.h"
#include "attention_layout.h"
#include "rounding.h"

namespace paceline {
namespace {

constexpr int64_t kTogether = 4;  // keys of the widest unit of V

// Never infinite or NaN: attention multiplies values it must not see by zero, and the next owner of a block
// must not meet this one's overflow. The owner's own NaN still reaches its result through q.
inline float finite(float x) {
  constexpr float kLargest = 3.3895314e38f;  // bfloat16's
  x = x < kLargest ? x : kLargest;
  return x > -kLargest ? x : -kLargest;
}

// The width of a head, and half of what turns of it. Loops over widths the compiler knows are without
// remainders, which makes the most usual ones 1.15 (bfloat16) and 1.3 times (int8) as fast.
struct AnyHead {
  int64_t width, half;
};
struct HeadOf64 {
  static constexpr int64_t width = 64, half = 32;
};

template <class Head>
inline void rotate(Head head, const float* __restrict x, const float* __restrict cos,
                   const float* __restrict sin, float* __restrict out) {
  for (int64_t i = 0; i < head.half; ++i) {
    out[i] = x[i] * cos[i] - x[i + head.half] * sin[i];
    out[i + head.half] = x[i + head.half] * cos[i] + x[i] * sin[i];
  }
  for (int64_t i = 2 * head.half; i < head.width; ++i) out[i] = x[i];
}

// The bits of an element of the pool.
template <KvFormat kFormat>
using Element = std::conditional_t<kFormat == KvFormat::kFloat32, uint32_t,
                                   std::conditional_t<kFormat == KvFormat::kBfloat16, uint16_t, uint8_t>>;

// A key or value of one head.
template <KvFormat kFormat>
struct PackedVector {
  static constexpr int64_t kUnitElements = sizeof(uint32_t) / sizeof(Element<kFormat>);
  alignas(64) Element<kFormat> elements[kMaxHeadWidth];
  float scale;  // of int8

  // `offset` is added to int8.
  template <class Head>
  void pack(Head head, const float* x, int32_t offset) {
    if constexpr (kFormat == KvFormat::kFloat32) {
      for (int64_t e = 0; e < head.width; ++e) elements[e] = std::bit_cast<uint32_t>(finite(x[e]));
    } else if constexpr (kFormat == KvFormat::kBfloat16) {
      for (int64_t e = 0; e < head.width; ++e) elements[e] = bfloat16_bits(finite(x[e]));
    } else {
      float bounded[kMaxHeadWidth];
      for (int64_t e = 0; e < head.width; ++e) bounded[e] = finite(x[e]);
      const Int8Scale steps = int8_scale(bounded, head.width);
      for (int64_t e = 0; e < head.width; ++e)
        elements[e] = static_cast<uint8_t>(round_to_even(bounded[e] * steps.inverse) + offset);
      for (int64_t e = head.width; e % kUnitElements != 0; ++e) elements[e] = 0;
      scale = steps.scale;
    }
  }
  uint32_t unit(int64_t u) const {
    uint32_t unit;
    std::memcpy(&unit, elements + u * kUnitElements, sizeof unit);
    return unit;
  }
};

// Stores the keys of kCount tokens from `lane` on.
template <int64_t kCount, KvFormat kFormat, class Head>
inline void store_keys(Head head, const PackedVector<kFormat>* keys, uint32_t* group, int64_t lane) {
  constexpr int64_t kShare = PackedVector<kFormat>::kUnitElements;
  const int64_t units = (head.width + kShare - 1) / kShare;
  group += lane;
  for (int64_t u = 0; u < units; ++u)
    for (int64_t k = 0; k < kCount; ++k) group[u * kGroupKeys + k] = keys[k].unit(u);
  if constexpr (kFormat == KvFormat::kInt8)
    for (int64_t k = 0; k < kCount; ++k)
      std::memcpy(group + units * kGroupKeys + k, &keys[k].scale, sizeof(float));
}

template <int64_t kCount, KvFormat kFormat, class Head>
inline void store_values(Head head, const PackedVector<kFormat>* values, uint32_t* group, int64_t lane) {
  constexpr int64_t kShare = PackedVector<kFormat>::kUnitElements;
  const int64_t width = padded_width(head.width);
  uint32_t* units = group + lane / kShare * width;
  if constexpr (kCount == 1) {
    auto* elements = reinterpret_cast<Element<kFormat>*>(units) + lane % kShare;
    for (int64_t e = 0; e < head.width; ++e) elements[kShare * e] = values->elements[e];
  } else {
    for (int64_t u = 0; u < kCount / kShare; ++u)
      for (int64_t e = 0; e < head.width; ++e) {
        uint32_t unit = 0;
        for (int64_t k = 0; k < kShare; ++k)
          unit |= uint32_t{values[u * kShare + k].elements[e]} << (k * (32 / kShare));
        units[u * width + e] = unit;
      }
  }
  if constexpr (kFormat == KvFormat::kInt8)
    for (int64_t k = 0; k < kCount; ++k)
      std::memcpy(group + kGroupKeys / kShare * width + lane + k, &values[k].scale, sizeof(float));
}

// kCount tokens of one row, whose keys share a group.
template <KvFormat kFormat, int64_t kCount, class Head>
inline void store_tokens(Head head, const RotaryStoreArgs& args, int64_t row, int64_t token) {
  const KvPool& pool = *args.pool;
  const int64_t position = args.rows->positions[token];
  const int64_t x_width = (args.num_heads + 2 * pool.num_kv_heads) * head.width;
  const float* cos = args.cos + position * head.half;
  const float* sin = args.sin + position * head.half;
  const float* x = args.qkv + token * x_width;
  float* q = args.q + token * args.num_heads * head.width;
  for (int64_t k = 0; k < kCount; ++k)
    for (int64_t h = 0; h < args.num_heads; ++h, q += head.width)
      rotate(head, x + k * x_width + h * head.width, cos + k * head.half, sin + k * head.half, q);

  const int32_t* table = args.rows->block_tables + args.rows->slots[row] * args.rows->table_stride;
  const int64_t block = table[position / pool.block_size];
  const int64_t group_index = position % pool.block_size / kGroupKeys;
  const int64_t lane = position % kGroupKeys;
  PackedVector<kFormat> keys[kCount], values[kCount];
  float rotated[kMaxHeadWidth];
  for (int64_t h = 0; h < pool.num_kv_heads; ++h) {
    const float* key = x + (args.num_heads + h) * head.width;
    for (int64_t k = 0; k < kCount; ++k, key += x_width) {
      rotate(head, key, cos + k * head.half, sin + k * head.half, rotated);
      keys[k].pack(head, rotated, kKeyOffset);
      values[k].pack(head, key + pool.num_kv_heads * head.width, 0);
    }
    uint32_t* group = group_at(pool, args.layer_index, block, h, group_index);
    store_keys<kCount>(head, keys, group, lane);
    store_values<kCount>(head, values, group + key_units(pool), lane);
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

template <KvFormat kFormat, class Head>
inline void store_tile(Head head, const RotaryStoreArgs& args, int64_t tile) {
  const StepRows& rows = *args.rows;
  int64_t token = tile * kRotaryTokens;
  const int64_t end = token + kRotaryTokens < rows.num_tokens ? token + kRotaryTokens : rows.num_tokens;
  int64_t row = row_of(rows, token);
  while (token < end) {
    while (rows.row_starts[row + 1] <= token) ++row;
    const int64_t after = token + kTogether;
    if (rows.positions[token] % kTogether == 0 && after <= end && after <= rows.row_starts[row + 1]) {
      store_tokens<kFormat, kTogether>(head, args, row, token);
      token = after;
    } else {
      store_tokens<kFormat, 1>(head, args, row, token++);
    }
  }
}

template <KvFormat kFormat>
inline void store_tile(const RotaryStoreArgs& args, int64_t tile) {
  const AnyHead head{args.pool->head_width, args.table_width};
  if (head.width == HeadOf64::width && head.half == HeadOf64::half)
    store_tile<kFormat>(HeadOf64{}, args, tile);
  else
    store_tile<kFormat>(head, args, tile);
}

inline void rotary_store_tile(const RotaryStoreArgs& args, int64_t tile) {
  switch (args.pool->format) {
    case KvFormat::kFloat32:
      return store_tile<KvFormat::kFloat32>(args, tile);
    case KvFormat::kBfloat16:
      return store_tile<KvFormat::kBfloat16>(args, tile);
    case KvFormat::kInt8:
      return store_tile<KvFormat::kInt8>(args, tile);
  }
}

}  // namespace
}  // namespace paceline
