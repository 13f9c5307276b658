#include "penalties.h"

namespace paceline {
namespace {

constexpr uint32_t kSeen = 1u << 31;  // the bits below count outputs

float penalized(float logit, uint32_t mark, const Penalties& penalties) {
  logit = logit > 0 ? logit / penalties.repetition : logit * penalties.repetition;
  const uint32_t outputs = mark & ~kSeen;
  if (outputs == 0) return logit;
  return logit - penalties.presence - penalties.frequency * static_cast<float>(outputs);
}

}  // namespace

void apply_penalties(const Penalties& penalties, const int32_t* history, int64_t num_known,
                     int64_t num_prompt, int64_t vocab_size, uint32_t* marks, float* logits) {
  const auto in_vocabulary = [vocab_size](int32_t token) { return token >= 0 && token < vocab_size; };
  for (int64_t i = 0; i < num_known; ++i)
    if (in_vocabulary(history[i]))
      marks[history[i]] = (marks[history[i]] | kSeen) + (i >= num_prompt ? 1 : 0);
  for (int64_t i = 0; i < num_known; ++i) {
    const int32_t token = history[i];
    if (!in_vocabulary(token) || marks[token] == 0) continue;
    logits[token] = penalized(logits[token], marks[token], penalties);
    marks[token] = 0;
  }
}

}  // namespace paceline
