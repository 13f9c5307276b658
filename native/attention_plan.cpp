#include <algorithm>

#include "attention.h"
#include "attention_layout.h"

namespace paceline {
namespace {

constexpr int64_t kLeastTokens = 4;     // of an item that is cut smaller to feed all threads
constexpr int64_t kTilesPerThread = 4;  // enough for threads that steal to end together

int64_t wanted_tiles(const AttendLimits& limits) {
  return limits.num_threads == 1 ? 1 : kTilesPerThread * limits.num_threads;
}

int64_t pieces_of(int64_t num_keys) { return (num_keys + kPieceKeys - 1) / kPieceKeys; }

// Room for every decode that is cut into spans: fewer than wanted_tiles of them (with their heads) are in
// such a step.
int64_t partials_size(const AttendLimits& limits) {
  if (limits.num_threads == 1) return 0;
  const int64_t queries = limits.num_heads / limits.num_kv_heads;
  return wanted_tiles(limits) * pieces_of(limits.max_context) * queries * record_size(limits.head_width);
}

int64_t bytes_of(int64_t words) { return round_to_16(words) * 4; }

// The heavy items first, so that threads end together: later rows are prefills, later tokens see more keys.
void cut_into_items(AttendPlan& plan, const StepRows& rows, int64_t tokens) {
  plan.num_items = 0;
  for (int64_t row = rows.num_rows - 1; row >= 0; --row) {
    const int64_t start = rows.row_starts[row];
    for (int64_t end = rows.row_starts[row + 1]; end > start; end -= tokens) {
      const int64_t first = std::max(start, end - tokens);
      plan.items[plan.num_items++] = {static_cast<int32_t>(row), static_cast<int32_t>(first),
                                      static_cast<int32_t>(end - first)};
    }
  }
}

}  // namespace

size_t attend_plan_bytes(const AttendLimits& limits) {
  return bytes_of(3 * limits.max_tokens) + bytes_of(limits.max_tokens * limits.num_kv_heads) +
         bytes_of(partials_size(limits));
}

void attend_plan_place(AttendPlan& plan, const AttendLimits& limits, void* memory) {
  std::byte* at = static_cast<std::byte*>(memory);
  plan = {};
  plan.limits = limits;
  plan.items = reinterpret_cast<AttendItem*>(at);
  at += bytes_of(3 * limits.max_tokens);
  plan.spans_done = reinterpret_cast<int32_t*>(at);
  std::fill_n(plan.spans_done, limits.max_tokens * limits.num_kv_heads, 0);
  at += bytes_of(limits.max_tokens * limits.num_kv_heads);
  plan.partials = reinterpret_cast<float*>(at);
  plan.partials_size = partials_size(limits);
}

void attend_plan(AttendPlan& plan, const StepRows& rows) {
  const AttendLimits& limits = plan.limits;
  const int64_t wanted = wanted_tiles(limits);
  const int64_t most = item_tokens(limits.num_heads, limits.num_kv_heads);
  const int64_t fair = rows.num_tokens * limits.num_kv_heads / wanted;
  cut_into_items(plan, rows, std::clamp(fair, std::min(kLeastTokens, most), most));

  int64_t longest = 0, pieces = 0;
  for (int64_t i = 0; i < plan.num_items; ++i) {
    const AttendItem& item = plan.items[i];
    longest = std::max<int64_t>(longest, item.num_tokens);
    pieces = std::max(pieces, pieces_of(rows.positions[item.first_token + item.num_tokens - 1] + 1));
  }
  const int64_t tiles = plan.num_items * limits.num_kv_heads;
  const int64_t queries = longest * (limits.num_heads / limits.num_kv_heads);
  plan.partials_stride = pieces * queries * record_size(limits.head_width);
  plan.num_spans = 1;
  if (tiles > 0 && tiles < wanted && tiles * plan.partials_stride <= plan.partials_size)
    plan.num_spans = std::min((wanted + tiles - 1) / tiles, pieces);
}

size_t attend_scratch_bytes(const AttendLimits& limits) {
  const int64_t queries = item_queries(limits.num_heads, limits.num_kv_heads);
  return attend_scratch(nullptr, queries, limits.head_width).size * 4;
}

int64_t attend_tiles(const AttendArgs& args) {
  return args.plan->num_items * args.pool->num_kv_heads * args.plan->num_spans;
}

int64_t rotary_store_tiles(const RotaryStoreArgs& args) {
  return (args.rows->num_tokens + kRotaryTokens - 1) / kRotaryTokens;
}

}  // namespace paceline
