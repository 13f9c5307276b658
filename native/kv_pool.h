// The paged store of keys and values, one allocation for all layers.
//
// A block holds `block_size` tokens of one layer. Keys lie in groups of 16, the lanes of a vector:
//
//   pool  = [layer][block][kv_head][block_size / 16] groups
//   group = K units [E / u, rounded up][16 keys], then V units [16 / u][E rounded up to 16]
//
// A unit is 4 bytes: one float32 (u = 1), a pair of bfloat16 (u = 2) or four int8 (u = 4), the first element
// in the low bits. A unit of K holds neighbouring head elements, one of V neighbouring keys, so both products
// of attention are sums of unit * unit over vectors of units.
//
// int8 has a scale for each token and head: 16 float32 behind the K units, of the keys, and 16 behind the V
// units. K is stored with 128 added, as the instruction that multiplies it by signed numbers wants it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace paceline {

enum class KvFormat : int32_t { kFloat32 = 0, kBfloat16 = 1, kInt8 = 2 };

constexpr int64_t kGroupKeys = 16;  // block_size is a multiple of it
constexpr int64_t kMaxHeadWidth = 512;

struct KvPool {
  // kv_pool_bytes bytes, 64-byte aligned, zeroed by the owner before first use: attention multiplies unused V
  // slots by zero, so they must be finite. rotary_store keeps them so.
  void* data;
  KvFormat format;
  int64_t num_layers;
  int64_t num_blocks;
  int64_t block_size;  // multiple of 16
  int64_t num_kv_heads;
  int64_t head_width;  // E, even, at most kMaxHeadWidth
};

size_t kv_pool_bytes(const KvPool& pool);

// Copies the first `num_tokens` slots of block `source` to `target` in all layers; other slots of `target`
// stay.
void copy_block(const KvPool& pool, int64_t source, int64_t target, int64_t num_tokens);

}  // namespace paceline
