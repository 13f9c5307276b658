// From logits to tokens: each row is one tile, one thread, and depends on nothing but its own inputs.
//
// Order: mask, bias, penalties, temperature, top-k, top-p, min-p, draw. A row with a target is scored
// instead. Reported log-probabilities are the log-softmax of the raw logits. Equal logits rank by lower token
// id.
#pragma once

#include <cstddef>
#include <cstdint>

#include "softmax.h"

namespace paceline {

// Arrays over the N rows of a call; meanings as in ops/protocol.py's SampleBatch and SampleResult.
struct SampleRows {
  const int32_t* targets;
  const int32_t* slots;
  const int32_t* num_known;
  const int32_t* num_prompt;
  const float* temperature;
  const int32_t* top_k;
  const float* top_p;
  const float* min_p;
  const float* repetition;
  const float* presence;
  const float* frequency;
  const uint64_t* seeds;
  const int32_t* num_top;
  const int32_t* bias_starts;  // [N + 1]
  const int32_t* bias_ids;
  const float* bias_values;
  int64_t num_bias;          // of bias_ids and bias_values
  const int32_t* mask_rows;  // [N]
  const uint32_t* masks;     // [num_masks, mask_stride]
  int64_t num_masks;
  int64_t mask_stride;
  const int32_t* histories;  // [history_rows, history_stride]
  int64_t history_rows;
  int64_t history_stride;
  int32_t* tokens;      // [N]
  float* logprobs;      // [N]
  int32_t* top_ids;     // [N, top_stride], all -1 before
  float* top_logprobs;  // [N, top_stride], all -infinity before
  int64_t top_stride;
};

struct SampleArgs {
  const SoftmaxKernels* softmax;
  const SampleRows* rows;
  int64_t first_row;      // tile i is row first_row + i
  const float* logits;    // [tiles, V]
  int64_t vocab_size;     // V
  std::byte* scratch;     // [threads, scratch_stride], zeroed before the first call
  size_t scratch_stride;  // >= sample_scratch_bytes, multiple of 64
};

size_t sample_scratch_bytes(int64_t vocab_size);

void sample(const SampleArgs& args, int64_t tile, int thread);

}  // namespace paceline
