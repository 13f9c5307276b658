// Rotary embedding with the store of keys and values, and attention over the paged store, for any mix of
// prefill chunks and decodes in one call.
//
// Shapes: T tokens and R rows (sequences) in the step, H query heads, K key/value heads, E head width. KV
// head g serves query heads [g * H / K, (g + 1) * H / K).
//
// Per session: place an AttendPlan in memory of attend_plan_bytes. Per step: fill StepRows, call attend_plan
// once. Per layer: run the tiles of rotary_store, a barrier, the tiles of attend.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kv_pool.h"

namespace paceline {

// One step's tokens. Row i covers tokens [row_starts[i], row_starts[i + 1]) at consecutive positions.
struct StepRows {
  int64_t num_tokens;           // T
  int64_t num_rows;             // R
  const int32_t* row_starts;    // [R + 1]
  const int32_t* slots;         // [R]
  const int32_t* positions;     // [T]
  const int32_t* block_tables;  // [slots, table_stride]; entries past a row's need are not read
  int64_t table_stride;
};

struct RotaryStoreArgs {
  const StepRows* rows;
  const KvPool* pool;
  int64_t layer_index;
  int64_t num_heads;  // H
  const float* qkv;   // [T, (H + 2K) * E]
  float* q;           // [T, H * E], rotated
  const float* cos;   // [max positions, table_width]; elements i and i + table_width of a head turn together
  const float* sin;
  int64_t table_width;  // half of the rotated width; head elements from 2 * table_width on pass through
};

int64_t rotary_store_tiles(const RotaryStoreArgs& args);

// What the memory of attention is sized for.
struct AttendLimits {
  int64_t max_tokens;   // T never exceeds it
  int64_t max_context;  // positions stay below it
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_width;
  int64_t num_threads;
};

// Some tokens of one row: the queries one tile shares keys and values among.
struct AttendItem {
  int32_t row;
  int32_t first_token;  // index into the step's tokens
  int32_t num_tokens;
};

// How one step's attention is cut into tiles (item, kv head, span of its keys). Cutting changes no bit of the
// result.
struct AttendPlan {
  AttendLimits limits;
  AttendItem* items;
  int32_t* spans_done;  // [items * K]; zero between calls; the last span of an item and head to finish merges
  float* partials;      // piece results of spans that wait for the merge
  int64_t partials_size;    // floats
  int64_t partials_stride;  // floats of one item and head
  int64_t num_items;
  int64_t num_spans;
};

size_t attend_plan_bytes(const AttendLimits& limits);

// Binds the plan to `memory` (attend_plan_bytes, 64-byte aligned).
void attend_plan_place(AttendPlan& plan, const AttendLimits& limits, void* memory);

// Once a step, before any layer: O(T / queries a tile + R).
void attend_plan(AttendPlan& plan, const StepRows& rows);

// Bytes of scratch for one thread.
size_t attend_scratch_bytes(const AttendLimits& limits);

struct AttendArgs {
  const StepRows* rows;
  const KvPool* pool;
  const AttendPlan* plan;
  int64_t layer_index;
  int64_t num_heads;
  float scale;            // > 0
  int64_t window;         // a query at p sees keys (p - window, p]; 0: [0, p]
  float soft_cap;         // c: scaled scores s become c * tanh(s / c); 0: off
  const float* q;         // [T, H * E]
  float* output;          // [T, H * E]
  std::byte* scratch;     // [num_threads, scratch_stride], 64-byte aligned
  size_t scratch_stride;  // >= attend_scratch_bytes, multiple of 64
};

int64_t attend_tiles(const AttendArgs& args);

namespace portable {
void rotary_store(const RotaryStoreArgs& args, int64_t tile, int thread);
void attend(const AttendArgs& args, int64_t tile, int thread);
}  // namespace portable

#if defined(__x86_64__)
namespace avx2 {
void rotary_store(const RotaryStoreArgs& args, int64_t tile, int thread);
void attend(const AttendArgs& args, int64_t tile, int thread);
}  // namespace avx2

namespace avx512 {
void rotary_store(const RotaryStoreArgs& args, int64_t tile, int thread);
void attend(const AttendArgs& args, int64_t tile, int thread);
}  // namespace avx512
#endif

}  // namespace paceline
