// Where a key or value lies in the pool (see kv_pool.h). Internal linkage: included by code compiled for
// different instruction sets, whose copies must not be mixed by the linker.
#pragma once

#include "kv_pool.h"

namespace paceline {
namespace {

// Elements of a 4-byte unit.
inline int64_t unit_elements(KvFormat format) {
  return format == KvFormat::kInt8 ? 4 : format == KvFormat::kBfloat16 ? 2 : 1;
}

// Of one key or query, without scales.
inline int64_t vector_units(const KvPool& pool) {
  return (pool.head_width + unit_elements(pool.format) - 1) / unit_elements(pool.format);
}

// Scales of the keys, or of the values, of a group.
inline int64_t scale_units(const KvPool& pool) { return pool.format == KvFormat::kInt8 ? kGroupKeys : 0; }

// V's lanes are head elements; the spare ones stay zero.
inline int64_t padded_width(int64_t head_width) { return (head_width + 15) / 16 * 16; }

inline int64_t key_units(const KvPool& pool) { return vector_units(pool) * kGroupKeys + scale_units(pool); }

inline int64_t value_units(const KvPool& pool) {
  return kGroupKeys / unit_elements(pool.format) * padded_width(pool.head_width) + scale_units(pool);
}

inline int64_t group_units(const KvPool& pool) { return key_units(pool) + value_units(pool); }

// Group `group` of a block of one layer and head: its K units, and key_units further its V units.
inline uint32_t* group_at(const KvPool& pool, int64_t layer, int64_t block, int64_t kv_head, int64_t group) {
  const int64_t head = (layer * pool.num_blocks + block) * pool.num_kv_heads + kv_head;
  const int64_t index = head * (pool.block_size / kGroupKeys) + group;
  return static_cast<uint32_t*>(pool.data) + index * group_units(pool);
}

}  // namespace
}  // namespace paceline
