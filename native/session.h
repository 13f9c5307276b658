// A model ready to run: its recorded layers and head, the KV pool, and the memory of a step. Nothing is
// allocated after construction.
#pragma once

#include <memory>

#include "program.h"
#include "sample.h"

namespace paceline {

// As SessionShape and RotaryTable of ops/protocol.py. `cos` and `sin` are copied.
struct SessionSpec {
  int64_t max_tokens;
  int64_t max_rows;
  KvPool pool;       // without data
  const float* cos;  // [positions, width]
  const float* sin;
  int64_t num_positions;
  int64_t table_width;
};

// As Batch of ops/protocol.py.
struct StepBatch {
  const int32_t* tokens;
  StepRows rows;
  int64_t table_rows;  // of block_tables
};

class Session {
 public:
  // `head` starts from an input that is the output of `layers`. Throws std::invalid_argument where they don't
  // fit.
  Session(std::shared_ptr<ThreadPool> threads, const InstructionSet& instruction_set, Program layers,
          Program head, const SessionSpec& spec);

  // [num_copies, 3]: source, target, number of tokens; in order.
  void copy_blocks(const int32_t* copies, int64_t num_copies);
  void forward(const StepBatch& batch);
  // `indices` [n] into the tokens of the last forward; `out` [n, D], copied.
  void hidden(const int32_t* indices, int64_t n, float* out) const;
  // Likewise; `out` [n, V].
  void logits(const int32_t* indices, int64_t n, float* out);
  // Fills tokens, logprobs, top_ids and top_logprobs of `rows`.
  void sample(const int32_t* indices, int64_t n, const SampleRows& rows);

  int64_t width() const { return layers_.output_width(); }
  int64_t vocab_size() const { return head_.output_width(); }
  int64_t max_rows() const { return spec_.max_rows; }
  int64_t max_tokens() const { return spec_.max_tokens; }

 private:
  // The head runs over so many rows at a time: memory for their logits only.
  static constexpr int64_t kHeadRows = 64;

  void place_attention();
  void check_batch(const StepBatch& batch) const;
  void check_row(const StepBatch& batch, int64_t row) const;
  void check_indices(const int32_t* indices, int64_t n) const;
  void check_sample(const SampleRows& rows, int64_t row) const;

  std::shared_ptr<ThreadPool> threads_;
  const InstructionSet& instruction_set_;
  Program layers_;
  Program head_;
  SessionSpec spec_;
  Memory rotary_;
  Memory kv_;
  Memory plan_memory_;
  Memory attend_scratch_;
  Memory sample_scratch_;
  AttendPlan plan_{};
  StepRows rows_{};  // of the step being computed
  Surroundings surroundings_{};
  int64_t last_tokens_ = 0;  // of the last forward
  std::vector<Task> head_tasks_;
};

}  // namespace paceline
