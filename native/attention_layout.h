// Sizes and scratch that the plan and the kernels of attention agree on.
//
// A query is one token's vector of one head; an item and kv head have num_tokens * H / K of them. What keys
// give a query is a record of floats: the weighted sum of V [E padded to 16], the sum of weights in 16 lanes,
// the largest score, 15 unused.
#pragma once

#include "attention.h"
#include "attention_int8.h"
#include "kv_layout.h"

namespace paceline {
namespace {

// Keys are reduced in pieces [128 j, 128 (j + 1)) of absolute positions, merged in ascending order: what a
// query gets depends on neither its neighbours in the step nor how its prompt was chunked.
constexpr int64_t kPieceKeys = 128;
constexpr int64_t kPieceGroups = kPieceKeys / kGroupKeys;
constexpr int64_t kRotaryTokens = 8;  // a tile of rotary_store
constexpr int64_t kTileQueries = 48;  // share K and V from the caches
constexpr int64_t kBlockQueries = 6;  // share them from registers

inline int64_t round_to_16(int64_t count) { return (count + 15) / 16 * 16; }

inline int64_t record_size(int64_t head_width) { return padded_width(head_width) + 32; }

// Most tokens an item may have.
inline int64_t item_tokens(int64_t num_heads, int64_t num_kv_heads) {
  const int64_t tokens = kTileQueries * num_kv_heads / num_heads;
  return tokens > 0 ? tokens : 1;
}

inline int64_t item_queries(int64_t num_heads, int64_t num_kv_heads) {
  return item_tokens(num_heads, num_kv_heads) * (num_heads / num_kv_heads);
}

// Words of one query as the products want it.
inline int64_t query_units(const KvPool& pool) {
  return vector_units(pool) + (pool.format == KvFormat::kInt8 ? kInt8QueryUnits : 0);
}

// One thread's scratch; everything 64-byte aligned.
struct AttendScratch {
  float* state;        // [queries, record_size]
  float* results;      // [kBlockQueries, record_size]: of one piece
  float* scores;       // [kBlockQueries, kPieceKeys]
  uint32_t* weights;   // [kBlockQueries, kPieceKeys / u]; int8: two terms
  uint32_t* queries;   // [queries, query_units]
  int32_t* positions;  // [queries]
  int64_t size;        // in 4-byte words
};

inline AttendScratch attend_scratch(std::byte* memory, int64_t queries, int64_t head_width) {
  const int64_t record = record_size(head_width);
  float* words = reinterpret_cast<float*>(memory);
  AttendScratch scratch{};
  int64_t at = 0;
  const auto take = [&](int64_t size) {
    float* start = words + at;
    at += round_to_16(size);
    return start;
  };
  scratch.state = take(queries * record);
  scratch.results = take(kBlockQueries * record);
  scratch.scores = take(kBlockQueries * kPieceKeys);
  scratch.weights = reinterpret_cast<uint32_t*>(take(kBlockQueries * kPieceKeys));
  scratch.queries = reinterpret_cast<uint32_t*>(take(queries * (head_width + kInt8QueryUnits)));
  scratch.positions = reinterpret_cast<int32_t*>(take(queries));
  scratch.size = at;
  return scratch;
}

}  // namespace
}  // namespace paceline
