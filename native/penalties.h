// Bias and penalties: what a request changes about its logits before a token is drawn.
#pragma once

#include <cstdint>

namespace paceline {

struct Penalties {
  float repetition;  // of every token seen: positive logits are divided by it, others multiplied; 1: off
  float presence;    // subtracted once from a token that was output; 0: off
  float frequency;   // subtracted for each time it was output; 0: off
};

inline bool any(const Penalties& p) {
  return p.repetition != 1.0f || p.presence != 0.0f || p.frequency != 0.0f;
}

// Changes `logits` [vocab_size] by the tokens of `history` [num_known], of which the first num_prompt are the
// prompt. `marks` [vocab_size] is all zeros before and after. Cost: two passes over the history.
void apply_penalties(const Penalties& penalties, const int32_t* history, int64_t num_known,
                     int64_t num_prompt, int64_t vocab_size, uint32_t* marks, float* logits);

}  // namespace paceline
