// The walk of one tile of attention, shared by all instruction sets: which keys, which queries, where results
// go. The arithmetic is a Kernel's (attention_portable.cpp, attention_avx512.cpp):
//
//   template <KvFormat> static void piece(const PieceTask&)   a block of queries against one piece of keys
//   static void merge(float* state, const float* piece, int64_t width)
//   static void finish(const float* state, int64_t head_width, float* output)
//
// A query sees keys [low, high) of a piece; a query that sees none of it is left out, which equals having
// weight zero. With num_spans > 1 the pieces of an item go to partials, and whoever ends last merges them, in
// the same order.
#pragma once

#include <cstring>

#include "attention_ahead.h"
#include "attention_int8.h"
#include "attention_layout.h"
#include "rounding.h"

namespace paceline {
namespace {

// Scores become scale * s, or tanh_scale * tanh(s * scale) if capped; both in units of log 2, as weights are
// powers of 2.
struct ScoreScale {
  bool capped;
  float scale;
  float tanh_scale;
};

// 2^f - 1 = f (kPower1 + f (kPower2 + ...)) for |f| <= 1/2, to 2e-8 of 2^f (a minimax fit, rounded to
// float32).
constexpr float kPower1 = 0.693147182f;
constexpr float kPower2 = 0.240226477f;
constexpr float kPower3 = 0.0555033237f;
constexpr float kPower4 = 0.00961843692f;
constexpr float kPower5 = 0.00133988739f;
constexpr float kPower6 = 0.00015353362f;

struct KeyRange {
  int32_t low;
  int32_t high;
};

// Up to kBlockQueries queries against the groups [first_group, end_group) of one piece.
struct PieceTask {
  const uint32_t* const* groups;  // of the piece
  Ahead* ahead;
  int64_t first_group;
  int64_t end_group;
  int64_t value_offset;  // units from a group's start to its V
  int64_t key_units;     // of one key, without its scale
  int64_t query_units;   // of one query
  int64_t width;         // E padded
  int64_t num_queries;
  const uint32_t* queries;
  KeyRange visible[kBlockQueries];  // inside the piece
  bool all_visible;                 // to all queries
  ScoreScale scale;
  float* scores;
  uint32_t* weights;
  float* results;  // [num_queries, record_size]
};

struct AttendTile {
  int64_t index;
  AttendItem item;
  int64_t kv_head;
  int64_t span;
  int64_t merge_index;  // shared by the spans that are merged
  int64_t heads;        // query heads of this kv head
  int64_t num_queries;
  int64_t first_group;  // of the item's keys, counted from position 0
  int64_t end_group;
  int64_t first_piece;
  int64_t end_piece;
  int64_t span_begin;  // pieces of this tile
  int64_t span_end;
  const int32_t* block_table;
};

inline AttendTile locate_tile(const AttendArgs& args, int64_t tile) {
  const AttendPlan& plan = *args.plan;
  const StepRows& rows = *args.rows;
  AttendTile t{};
  t.index = tile;
  t.span = tile % plan.num_spans;
  t.merge_index = tile / plan.num_spans;
  t.kv_head = t.merge_index % args.pool->num_kv_heads;
  t.item = plan.items[t.merge_index / args.pool->num_kv_heads];
  t.heads = args.num_heads / args.pool->num_kv_heads;
  t.num_queries = t.item.num_tokens * t.heads;
  const int64_t first = rows.positions[t.item.first_token];
  const int64_t oldest = args.window > 0 && first >= args.window ? first - args.window + 1 : 0;
  t.first_group = oldest / kGroupKeys;
  t.end_group = (first + t.item.num_tokens - 1) / kGroupKeys + 1;
  t.first_piece = t.first_group / kPieceGroups;
  t.end_piece = (t.end_group - 1) / kPieceGroups + 1;
  const int64_t pieces = t.end_piece - t.first_piece;
  t.span_begin = t.first_piece + pieces * t.span / plan.num_spans;
  t.span_end = t.first_piece + pieces * (t.span + 1) / plan.num_spans;
  t.block_table = rows.block_tables + rows.slots[t.item.row] * rows.table_stride;
  return t;
}

inline KeyRange visible_keys(int64_t position, int64_t window, int64_t piece) {
  const int64_t start = piece * kPieceKeys;
  const int64_t high = position + 1 - start;
  const int64_t low = window > 0 ? high - window : 0;
  const auto clamped = [](int64_t key) {
    return static_cast<int32_t>(key < 0 ? 0 : key < kPieceKeys ? key : kPieceKeys);
  };
  return {clamped(low), clamped(high)};
}

inline ScoreScale score_scale(const AttendArgs& args) {
  constexpr float kLog2E = 1.44269504f;
  if (args.soft_cap > 0) return {true, 2 * kLog2E * args.scale / args.soft_cap, args.soft_cap * kLog2E};
  return {false, args.scale * kLog2E, 0};
}

// Rounds to nearest even; the same rounding for every query, wherever it is computed.
inline void pack_query(const KvPool& pool, const float* q, uint32_t* units) {
  if (pool.format == KvFormat::kInt8) return pack_int8_query(q, pool.head_width, units);
  if (pool.format == KvFormat::kFloat32) {
    std::memcpy(units, q, pool.head_width * sizeof(float));
    return;
  }
  for (int64_t e = 0; e < pool.head_width; e += 2)
    units[e / 2] = bfloat16_bits(q[e]) | uint32_t{bfloat16_bits(q[e + 1])} << 16;
}

inline void load_queries(const AttendArgs& args, const AttendTile& t, const AttendScratch& scratch) {
  const int64_t width = args.pool->head_width;
  const int64_t units = query_units(*args.pool);
  for (int64_t i = 0; i < t.num_queries; ++i) {
    const int64_t token = t.item.first_token + i / t.heads;
    const int64_t head = t.kv_head * t.heads + i % t.heads;
    pack_query(*args.pool, args.q + (token * args.num_heads + head) * width, scratch.queries + i * units);
    scratch.positions[i] = args.rows->positions[token];
  }
}

inline void clear_state(const AttendTile& t, const AttendScratch& scratch, int64_t head_width) {
  const int64_t record = record_size(head_width);
  const int64_t max_at = padded_width(head_width) + 16;
  std::memset(scratch.state, 0, t.num_queries * record * sizeof(float));
  for (int64_t i = 0; i < t.num_queries; ++i) scratch.state[i * record + max_at] = -__builtin_inff();
}

// What queries [first, first + num_queries) see of `piece`; false if nothing.
inline bool choose_keys(const AttendArgs& args, const AttendTile& t, const AttendScratch& scratch,
                        int64_t piece, int64_t first, PieceTask& task) {
  const int64_t left = t.num_queries - first;
  task.num_queries = left < kBlockQueries ? left : kBlockQueries;
  int64_t low = kPieceKeys, high = 0;
  task.all_visible = true;
  for (int64_t i = 0; i < task.num_queries; ++i) {
    const KeyRange seen = visible_keys(scratch.positions[first + i], args.window, piece);
    task.visible[i] = seen;
    task.all_visible = task.all_visible && seen.low == 0 && seen.high == kPieceKeys;
    low = seen.low < low ? seen.low : low;
    high = seen.high > high ? seen.high : high;
  }
  if (low >= high) return false;
  task.first_group = low / kGroupKeys;
  task.end_group = (high + kGroupKeys - 1) / kGroupKeys;
  task.queries = scratch.queries + first * task.query_units;
  return true;
}

// The groups of `piece` that some query of the item sees.
inline PieceGroups find_groups(const AttendArgs& args, const AttendTile& t, int64_t piece) {
  const KvPool& pool = *args.pool;
  const int64_t block_groups = pool.block_size / kGroupKeys;
  const int64_t start = piece * kPieceGroups;
  PieceGroups groups;
  groups.begin = t.first_group > start ? t.first_group - start : 0;
  groups.end = t.end_group < start + kPieceGroups ? t.end_group - start : kPieceGroups;
  const int64_t first = start + groups.begin;
  int64_t index = first / block_groups, inside = first % block_groups;
  for (int64_t group = groups.begin; group < groups.end; ++group) {
    groups.at[group] = group_at(pool, args.layer_index, t.block_table[index], t.kv_head, inside);
    if (++inside == block_groups) inside = 0, ++index;
  }
  return groups;
}

// What the thread will most likely read after `piece`: the tile's next one, or the first of the next tile,
// since threads take runs of neighbours.
inline PieceGroups find_next_groups(const AttendArgs& args, const AttendTile& t, int64_t piece) {
  if (piece + 1 < t.span_end) return find_groups(args, t, piece + 1);
  if (t.index + 1 == attend_tiles(args)) return {};
  const AttendTile next = locate_tile(args, t.index + 1);
  return next.span_begin < next.span_end ? find_groups(args, next, next.span_begin) : PieceGroups{};
}

inline PieceTask piece_task(const AttendArgs& args, const AttendScratch& scratch) {
  PieceTask task{};
  task.value_offset = key_units(*args.pool);
  task.key_units = vector_units(*args.pool);
  task.query_units = query_units(*args.pool);
  task.width = padded_width(args.pool->head_width);
  task.scale = score_scale(args);
  task.scores = scratch.scores;
  task.weights = scratch.weights;
  task.results = scratch.results;
  return task;
}

// Where the result of a piece waits for the merge: [group][piece of the item][query].
inline float* partial_of(const AttendArgs& args, const AttendTile& t, int64_t piece) {
  const int64_t index = (piece - t.first_piece) * t.num_queries;
  return args.plan->partials + t.merge_index * args.plan->partials_stride +
         index * record_size(args.pool->head_width);
}

template <class Kernel>
void merge_block(const PieceTask& task, float* state, const float* results) {
  const int64_t record = task.width + 32;
  for (int64_t i = 0; i < task.num_queries; ++i)
    if (task.visible[i].low < task.visible[i].high)
      Kernel::merge(state + i * record, results + i * record, task.width);
}

template <class Kernel>
void run_piece(const AttendArgs& args, const PieceTask& task) {
  switch (args.pool->format) {
    case KvFormat::kFloat32:
      return Kernel::template piece<KvFormat::kFloat32>(task);
    case KvFormat::kBfloat16:
      return Kernel::template piece<KvFormat::kBfloat16>(task);
    case KvFormat::kInt8:
      return Kernel::template piece<KvFormat::kInt8>(task);
  }
}

template <class Kernel>
void reduce_piece(const AttendArgs& args, const AttendTile& t, const AttendScratch& scratch, int64_t piece,
                  PieceTask& task) {
  const int64_t record = record_size(args.pool->head_width);
  const bool merges = args.plan->num_spans == 1;
  for (int64_t first = 0; first < t.num_queries; first += kBlockQueries) {
    if (!choose_keys(args, t, scratch, piece, first, task)) continue;
    if (!merges) task.results = partial_of(args, t, piece) + first * record;
    run_piece<Kernel>(args, task);
    if (merges) merge_block<Kernel>(task, scratch.state + first * record, task.results);
  }
}

// The pieces of the tile's span.
template <class Kernel>
void reduce_span(const AttendArgs& args, const AttendTile& t, const AttendScratch& scratch) {
  if (t.span_begin == t.span_end) return;
  PieceTask task = piece_task(args, scratch);
  PieceGroups groups = find_groups(args, t, t.span_begin);
  for (int64_t piece = t.span_begin; piece < t.span_end; ++piece) {
    const PieceGroups next = find_next_groups(args, t, piece);
    Ahead ahead(next, groups, group_units(*args.pool), task.key_units);
    task.groups = groups.at;
    task.ahead = &ahead;
    reduce_piece<Kernel>(args, t, scratch, piece, task);
    groups = next;
  }
}

template <class Kernel>
void merge_partials(const AttendArgs& args, const AttendTile& t, const AttendScratch& scratch) {
  const int64_t record = record_size(args.pool->head_width);
  PieceTask task = piece_task(args, scratch);
  for (int64_t piece = t.first_piece; piece < t.end_piece; ++piece)
    for (int64_t first = 0; first < t.num_queries; first += kBlockQueries)
      if (choose_keys(args, t, scratch, piece, first, task))
        merge_block<Kernel>(task, scratch.state + first * record,
                            partial_of(args, t, piece) + first * record);
}

// True for the last span of the group to end, which then sees what the others wrote. Leaves the counter at
// zero.
inline bool ends_last(const AttendArgs& args, const AttendTile& t) {
  int32_t* done = args.plan->spans_done + t.merge_index;
  if (__atomic_add_fetch(done, 1, __ATOMIC_ACQ_REL) < args.plan->num_spans) return false;
  __atomic_store_n(done, 0, __ATOMIC_RELAXED);
  return true;
}

template <class Kernel>
void attend_tile(const AttendArgs& args, int64_t tile, int thread) {
  const AttendTile t = locate_tile(args, tile);
  const int64_t width = args.pool->head_width;
  const int64_t queries = item_queries(args.num_heads, args.pool->num_kv_heads);
  const AttendScratch scratch = attend_scratch(args.scratch + thread * args.scratch_stride, queries, width);
  load_queries(args, t, scratch);
  clear_state(t, scratch, width);
  reduce_span<Kernel>(args, t, scratch);
  if (args.plan->num_spans > 1) {
    if (!ends_last(args, t)) return;
    merge_partials<Kernel>(args, t, scratch);
  }
  for (int64_t i = 0; i < t.num_queries; ++i) {
    const int64_t token = t.item.first_token + i / t.heads;
    const int64_t head = t.kv_head * t.heads + i % t.heads;
    Kernel::finish(scratch.state + i * record_size(width), width,
                   args.output + (token * args.num_heads + head) * width);
  }
}

}  // namespace
}  // namespace paceline
