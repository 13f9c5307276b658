#include "session.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace paceline {
namespace {

void require(bool holds, const char* what, int64_t value, int64_t limit) {
  if (!holds)
    throw std::invalid_argument(std::string(what) + ": " + std::to_string(value) + ", the limit is " +
                                std::to_string(limit));
}

size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }

bool same_heads(const AttentionSpec& a, const AttentionSpec& b) {
  return a.num_heads == b.num_heads && a.num_kv_heads == b.num_kv_heads && a.head_width == b.head_width;
}

}  // namespace

Session::Session(std::shared_ptr<ThreadPool> threads, const InstructionSet& instruction_set, Program layers,
                 Program head, const SessionSpec& spec)
    : threads_(std::move(threads)),
      instruction_set_(instruction_set),
      layers_(std::move(layers)),
      head_(std::move(head)),
      spec_(spec),
      rotary_(2 * spec.num_positions * spec.table_width * sizeof(float)) {
  const size_t table_size = static_cast<size_t>(spec.num_positions * spec.table_width);
  float* tables = rotary_.as<float>();
  std::copy_n(spec.cos, table_size, tables);
  std::copy_n(spec.sin, table_size, tables + table_size);
  surroundings_.rows = &rows_;
  surroundings_.pool = &spec_.pool;
  surroundings_.plan = &plan_;
  surroundings_.cos = tables;
  surroundings_.sin = tables + table_size;
  surroundings_.table_width = spec.table_width;
  if (!layers_.attention().empty()) place_attention();
  layers_.place(surroundings_, spec.max_tokens, nullptr);
  head_.place(surroundings_, kHeadRows, layers_.output());
  sample_scratch_ = Memory(threads_->num_threads() * rounded(sample_scratch_bytes(vocab_size())));
}

void Session::place_attention() {
  const AttentionSpec& first = layers_.attention()[0];
  KvPool& pool = spec_.pool;
  for (const AttentionSpec& other : layers_.attention())
    if (!same_heads(first, other))
      throw std::invalid_argument("attention: layers differ in heads or head width");
  require(first.num_kv_heads == pool.num_kv_heads, "attention: KV heads", first.num_kv_heads,
          pool.num_kv_heads);
  require(first.head_width == pool.head_width, "attention: head width", first.head_width, pool.head_width);
  require(first.num_heads % first.num_kv_heads == 0, "attention: heads must be a multiple of the KV heads",
          first.num_heads, first.num_kv_heads);
  require(layers_.num_layers() <= pool.num_layers, "attention: layers", layers_.num_layers(),
          pool.num_layers);
  require(2 * spec_.table_width <= first.head_width, "attention: rotated width", 2 * spec_.table_width,
          first.head_width);
  kv_ = Memory(kv_pool_bytes(pool));
  pool.data = kv_.as<void>();
  const AttendLimits limits{spec_.max_tokens,   spec_.num_positions, first.num_heads,
                            first.num_kv_heads, first.head_width,    threads_->num_threads()};
  plan_memory_ = Memory(attend_plan_bytes(limits));
  attend_plan_place(plan_, limits, plan_memory_.as<void>());
  surroundings_.scratch_stride = rounded(attend_scratch_bytes(limits));
  attend_scratch_ = Memory(threads_->num_threads() * surroundings_.scratch_stride);
  surroundings_.scratch = attend_scratch_.as<std::byte>();
}

void Session::copy_blocks(const int32_t* copies, int64_t num_copies) {
  const KvPool& pool = spec_.pool;
  for (const int32_t* copy = copies; copy < copies + 3 * num_copies; copy += 3) {
    for (int i = 0; i < 2; ++i)
      require(copy[i] >= 0 && copy[i] < pool.num_blocks, "copy_blocks: block", copy[i], pool.num_blocks - 1);
    require(copy[2] >= 0 && copy[2] <= pool.block_size, "copy_blocks: tokens", copy[2], pool.block_size);
  }
  if (pool.data == nullptr) return;
  for (const int32_t* copy = copies; copy < copies + 3 * num_copies; copy += 3)
    copy_block(pool, copy[0], copy[1], copy[2]);
}

void Session::forward(const StepBatch& batch) {
  check_batch(batch);
  rows_ = batch.rows;
  last_tokens_ = rows_.num_tokens;
  if (rows_.num_tokens == 0) return;
  if (!layers_.attention().empty()) attend_plan(plan_, rows_);
  const std::span<const Task> tasks = layers_.tasks({rows_.num_tokens, batch.tokens, nullptr});
  threads_->run(tasks.data(), static_cast<int64_t>(tasks.size()));
}

void Session::hidden(const int32_t* indices, int64_t n, float* out) const {
  check_indices(indices, n);
  for (int64_t i = 0; i < n; ++i)
    std::copy_n(layers_.output() + indices[i] * width(), width(), out + i * width());
}

void Session::logits(const int32_t* indices, int64_t n, float* out) {
  check_indices(indices, n);
  for (int64_t begin = 0; begin < n; begin += kHeadRows) {
    const int64_t rows = std::min(kHeadRows, n - begin);
    const std::span<const Task> tasks = head_.tasks({rows, nullptr, indices + begin});
    threads_->run(tasks.data(), static_cast<int64_t>(tasks.size()));
    std::memcpy(out + begin * vocab_size(), head_.output(), rows * vocab_size() * sizeof(float));
  }
}

void Session::sample(const int32_t* indices, int64_t n, const SampleRows& sample_rows) {
  check_indices(indices, n);
  for (int64_t row = 0; row < n; ++row) check_sample(sample_rows, row);
  SampleArgs args{instruction_set_.softmax,
                  &sample_rows,
                  0,
                  head_.output(),
                  vocab_size(),
                  sample_scratch_.as<std::byte>(),
                  rounded(sample_scratch_bytes(vocab_size()))};
  for (int64_t begin = 0; begin < n; begin += kHeadRows) {
    const int64_t rows = std::min(kHeadRows, n - begin);
    const std::span<const Task> tasks = head_.tasks({rows, nullptr, indices + begin});
    args.first_row = begin;
    head_tasks_.assign(tasks.begin(), tasks.end());
    head_tasks_.push_back({rows, run_tile<SampleArgs, paceline::sample>, &args});
    threads_->run(head_tasks_.data(), static_cast<int64_t>(head_tasks_.size()));
  }
}

void Session::check_indices(const int32_t* indices, int64_t n) const {
  for (int64_t i = 0; i < n; ++i)
    require(indices[i] >= 0 && indices[i] < last_tokens_, "token row", indices[i], last_tokens_ - 1);
}

void Session::check_sample(const SampleRows& rows, int64_t row) const {
  const int64_t last = vocab_size() - 1;
  require(rows.targets[row] >= -1 && rows.targets[row] <= last, "target", rows.targets[row], last);
  require(rows.slots[row] >= 0 && rows.slots[row] < rows.history_rows, "slot", rows.slots[row],
          rows.history_rows - 1);
  require(rows.num_known[row] >= 0 && rows.num_known[row] <= rows.history_stride, "num_known",
          rows.num_known[row], rows.history_stride);
  require(rows.num_top[row] >= 0 && rows.num_top[row] <= rows.top_stride, "num_top", rows.num_top[row],
          rows.top_stride);
  require(rows.bias_starts[row] >= 0 && rows.bias_starts[row] <= rows.bias_starts[row + 1] &&
              rows.bias_starts[row + 1] <= rows.num_bias,
          "bias_starts", rows.bias_starts[row + 1], rows.num_bias);
  require(rows.mask_rows[row] >= -1 && rows.mask_rows[row] < rows.num_masks, "mask_rows", rows.mask_rows[row],
          rows.num_masks - 1);
  if (rows.mask_rows[row] >= 0)
    require(rows.mask_stride == (vocab_size() + 31) / 32, "words of a mask", rows.mask_stride,
            (vocab_size() + 31) / 32);
  for (int32_t b = rows.bias_starts[row]; b < rows.bias_starts[row + 1]; ++b)
    require(rows.bias_ids[b] >= 0 && rows.bias_ids[b] <= last, "bias id", rows.bias_ids[b], last);
}

// Kernels index memory with what is in here, so it is looked at once: O(T + blocks in use).
void Session::check_batch(const StepBatch& batch) const {
  const StepRows& rows = batch.rows;
  require(rows.num_tokens <= spec_.max_tokens, "tokens in a step", rows.num_tokens, spec_.max_tokens);
  require(rows.num_rows <= spec_.max_rows, "rows in a step", rows.num_rows, spec_.max_rows);
  for (int64_t t = 0; t < rows.num_tokens; ++t)
    require(batch.tokens[t] >= 0 && batch.tokens[t] < layers_.num_tokens_known(), "token id", batch.tokens[t],
            layers_.num_tokens_known() - 1);
  require(rows.row_starts[0] == 0, "row_starts[0]", rows.row_starts[0], 0);
  require(rows.row_starts[rows.num_rows] == rows.num_tokens, "last of row_starts",
          rows.row_starts[rows.num_rows], rows.num_tokens);
  for (int64_t row = 0; row < rows.num_rows; ++row) check_row(batch, row);
}

void Session::check_row(const StepBatch& batch, int64_t row) const {
  const StepRows& rows = batch.rows;
  const int64_t begin = rows.row_starts[row], end = rows.row_starts[row + 1];
  require(begin < end, "row_starts must ascend, at row", row, rows.num_rows - 1);
  require(end <= rows.num_tokens, "row_starts", end, rows.num_tokens);
  const int64_t slot = rows.slots[row], position = rows.positions[begin], last = position + end - begin - 1;
  require(slot >= 0 && slot < batch.table_rows, "slot", slot, batch.table_rows - 1);
  require(position >= 0 && last < spec_.num_positions, "position", position < 0 ? position : last,
          spec_.num_positions - 1);
  for (int64_t t = begin; t < end; ++t)
    require(rows.positions[t] == position + t - begin, "positions of a row must be consecutive, at token", t,
            rows.num_tokens - 1);
  if (layers_.attention().empty()) return;
  const int64_t blocks = last / spec_.pool.block_size + 1;
  require(blocks <= rows.table_stride, "blocks of a row", blocks, rows.table_stride);
  const int32_t* table = rows.block_tables + slot * rows.table_stride;
  for (int64_t b = 0; b < blocks; ++b)
    require(table[b] >= 0 && table[b] < spec_.pool.num_blocks, "block id", table[b],
            spec_.pool.num_blocks - 1);
}

}  // namespace paceline
