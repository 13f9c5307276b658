#include "sample.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "penalties.h"
#include "random.h"

namespace paceline {
namespace {

constexpr float kInfinity = __builtin_inff();

bool better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// One thread's memory. `marks` is all zeros between rows.
struct Scratch {
  float* logits;          // [V] after mask, bias and penalties
  float* weights;         // [V]
  uint32_t* marks;        // [V]
  Candidate* candidates;  // [V]
};

int64_t padded(int64_t vocab_size) { return (vocab_size + 15) / 16 * 16; }

Scratch thread_scratch(const SampleArgs& args, int thread) {
  auto* at = reinterpret_cast<float*>(args.scratch + thread * args.scratch_stride);
  const int64_t size = padded(args.vocab_size);
  return {at, at + size, reinterpret_cast<uint32_t*>(at + 2 * size),
          reinterpret_cast<Candidate*>(at + 3 * size)};
}

struct Row {
  const SampleArgs& args;
  int64_t index;
  const float* raw;  // [V]
  Scratch scratch;

  const SampleRows& rows() const { return *args.rows; }
  const SoftmaxKernels& softmax() const { return *args.softmax; }
  int64_t vocab_size() const { return args.vocab_size; }
};

// The best `count` of `logits` [V], best first, -infinity excepted; returns how many there are.
int64_t best(const Row& row, const float* logits, int64_t count, Candidate* out) {
  const int64_t vocab_size = row.vocab_size();
  int64_t size = 0;
  float threshold = -kInfinity;
  for (int64_t id = 0; count > 0; ++id) {
    id += row.softmax().find(logits + id, vocab_size - id, threshold);
    if (id >= vocab_size) break;
    const float logit = std::min(logits[id], FLT_MAX);
    if (!(logit > -kInfinity)) continue;
    if (size == count) {
      if (logit == threshold) continue;
      std::pop_heap(out, out + size--, better);
    }
    out[size++] = {logit, static_cast<int32_t>(id)};
    std::push_heap(out, out + size, better);
    if (size == count) threshold = out[0].logit;
  }
  std::sort_heap(out, out + size, better);
  return size;
}

// First of the largest; 0 if all are -infinity.
int32_t argmax(const Row& row, const float* logits, float max) {
  if (max == -kInfinity) return 0;
  return static_cast<int32_t>(row.softmax().find(logits, row.vocab_size(), max));
}

bool adjusts(const Row& row, const Penalties& penalties) {
  const SampleRows& rows = row.rows();
  return any(penalties) || rows.bias_starts[row.index + 1] > rows.bias_starts[row.index] ||
         rows.mask_rows[row.index] >= 0;
}

// -infinity for each of the `count` logits whose bit is 0; most words of a mask are all ones or all zeros.
void mask_word(uint32_t word, int64_t count, float* logits) {
  if (word == ~uint32_t{0}) return;
  for (int64_t bit = 0; bit < count; ++bit)
    if ((word >> bit & 1) == 0) logits[bit] = -kInfinity;
}

void apply_mask(const uint32_t* mask, int64_t vocab_size, float* logits) {
  for (int64_t begin = 0; begin < vocab_size; begin += 32)
    mask_word(mask[begin / 32], std::min<int64_t>(32, vocab_size - begin), logits + begin);
}

// The row's logits after mask, bias and penalties.
const float* adjusted(const Row& row) {
  const SampleRows& rows = row.rows();
  const int64_t i = row.index;
  const Penalties penalties{rows.repetition[i], rows.presence[i], rows.frequency[i]};
  if (!adjusts(row, penalties)) return row.raw;
  float* logits = row.scratch.logits;
  std::memcpy(logits, row.raw, row.vocab_size() * sizeof(float));
  if (rows.mask_rows[i] >= 0)
    apply_mask(rows.masks + rows.mask_rows[i] * rows.mask_stride, row.vocab_size(), logits);
  for (int32_t b = rows.bias_starts[i]; b < rows.bias_starts[i + 1]; ++b)
    logits[rows.bias_ids[b]] += rows.bias_values[b];
  if (any(penalties))
    apply_penalties(penalties, rows.histories + rows.slots[i] * rows.history_stride, rows.num_known[i],
                    rows.num_prompt[i], row.vocab_size(), row.scratch.marks, logits);
  return logits;
}

// A draw of the candidates [0, count), weights [count], in this order.
int32_t draw(const Row& row, const Candidate* candidates, const float* weights, int64_t count) {
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += weights[i];
  double left = uniform(row.rows().seeds[row.index], row.rows().num_known[row.index]) * total;
  for (int64_t i = 0; i < count; ++i) {
    left -= weights[i];
    if (left < 0) return candidates[i].token;
  }
  return candidates[count - 1].token;  // rounding used the last weight up
}

// A draw of all tokens by ascending id: whole blocks first, then within the block.
int32_t draw_any(const Row& row, const float* logits, float max, float scale) {
  const int64_t vocab_size = row.vocab_size();
  double left = uniform(row.rows().seeds[row.index], row.rows().num_known[row.index]) *
                row.softmax().sum_exp(logits, vocab_size, max, scale);
  int32_t last = argmax(row, logits, max);
  for (int64_t begin = 0; begin < vocab_size; begin += kSoftmaxBlock) {
    const int64_t size = std::min(kSoftmaxBlock, vocab_size - begin);
    const double block = row.softmax().sum_exp(logits + begin, size, max, scale);
    if (left >= block) {
      left -= block;
      continue;
    }
    row.softmax().exps(logits + begin, size, max, scale, row.scratch.weights);
    for (int64_t i = 0; i < size; ++i) {
      if (row.scratch.weights[i] == 0) continue;
      last = static_cast<int32_t>(begin + i);
      left -= row.scratch.weights[i];
      if (left < 0) return last;
    }
  }
  return last;  // rounding used the last weight up
}

// The weights of the candidates, into scratch.weights. Overwrites scratch.logits.
void weigh(const Row& row, int64_t count, float max, float scale) {
  for (int64_t c = 0; c < count; ++c) row.scratch.logits[c] = row.scratch.candidates[c].logit;
  row.softmax().exps(row.scratch.logits, count, max, scale, row.scratch.weights);
}

// Weights are in [0, 1]; a bucket is an exponent and an eighth of its range, so that buckets rank as weights
// do.
uint32_t bucket_of(float weight) { return std::bit_cast<uint32_t>(weight) >> 20; }
constexpr uint32_t kBuckets = (0x3f800000u >> 20) + 1;

// The bucket in which the sum of the heaviest weights reaches `wanted`; 0 if all together don't.
uint32_t bucket_at(const float* weights, int64_t count, double wanted) {
  double sums[kBuckets] = {};
  for (int64_t c = 0; c < count; ++c) sums[bucket_of(weights[c])] += weights[c];
  uint32_t bucket = kBuckets;
  for (double sum = 0; bucket > 0 && sum < wanted;) sum += sums[--bucket];
  return bucket;
}

// The tokens that top-p and min-p may keep, best first: as many as they will keep and a few more, so that
// only those are sorted. Tokens lighter than (1 - top_p) / V of the total weigh less than 1 - top_p together
// and are left out at once.
int64_t heaviest(const Row& row, const float* logits, float max, float scale, double total) {
  const double top_p = row.rows().top_p[row.index], min_p = row.rows().min_p[row.index];
  const double least =
      std::max({(1.0 - top_p) * total / static_cast<double>(row.vocab_size()), min_p, 1e-37});
  // A little below, as a logit is compared in place of its weight.
  const float threshold = max + (static_cast<float>(std::log(least)) - 1e-3f) / scale;
  Candidate* candidates = row.scratch.candidates;
  int64_t count = row.softmax().collect(logits, row.vocab_size(), threshold, candidates);
  weigh(row, count, max, scale);
  const uint32_t bucket = top_p < 1.0 ? bucket_at(row.scratch.weights, count, top_p * total) : 0;
  int64_t kept = 0;
  for (int64_t c = 0; c < count; ++c)
    if (bucket_of(row.scratch.weights[c]) >= bucket) candidates[kept++] = candidates[c];
  std::sort(candidates, candidates + kept, better);
  return kept;
}

// Cuts sorted candidates to the shortest head that weighs top_p of `total`, then to those of min_p of the
// heaviest.
int64_t cut(const Row& row, const float* weights, int64_t count, double total) {
  const double wanted = static_cast<double>(row.rows().top_p[row.index]) * total;
  const float least = row.rows().min_p[row.index] * weights[0];
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0 && (sum >= wanted || weights[i] < least)) return i;
    sum += weights[i];
  }
  return count;
}

int32_t draw_filtered(const Row& row, const float* logits, float max, float scale) {
  const int64_t top_k = row.rows().top_k[row.index], vocab_size = row.vocab_size();
  const float* weights = row.scratch.weights;
  int64_t count;
  double total = 0;
  if (top_k > 0 && top_k < vocab_size) {
    count = best(row, logits, top_k, row.scratch.candidates);
    weigh(row, count, max, scale);
    for (int64_t c = 0; c < count; ++c) total += weights[c];
  } else {
    total = row.softmax().sum_exp(logits, vocab_size, max, scale);
    count = heaviest(row, logits, max, scale, total);
    weigh(row, count, max, scale);
  }
  return draw(row, row.scratch.candidates, weights, cut(row, weights, count, total));
}

int32_t choose(const Row& row, float raw_max) {
  const SampleRows& rows = row.rows();
  const int64_t i = row.index;
  if (rows.targets[i] >= 0) return rows.targets[i];
  const float* logits = adjusted(row);
  const float max = logits == row.raw ? raw_max : row.softmax().maximum(logits, row.vocab_size());
  const bool filtered = rows.top_k[i] > 0 || rows.top_p[i] < 1.0f || rows.min_p[i] > 0.0f;
  if (rows.temperature[i] == 0.0f || max == -kInfinity || rows.top_k[i] == 1) return argmax(row, logits, max);
  // A temperature close to zero must not make 0 * infinity of the largest logit.
  const float scale = std::min(1.0f / rows.temperature[i], 1e30f);
  return filtered ? draw_filtered(row, logits, max, scale) : draw_any(row, logits, max, scale);
}

// The log-softmax of a raw logit: -infinity where the row has no finite maximum.
float logprob(float logit, float max, double log_sum) {
  if (!(logit > -kInfinity) || max == -kInfinity) return -kInfinity;
  return static_cast<float>(static_cast<double>(std::min(logit, FLT_MAX)) - max - log_sum);
}

}  // namespace

size_t sample_scratch_bytes(int64_t vocab_size) {
  return padded(vocab_size) * (3 * sizeof(float) + sizeof(Candidate));
}

void sample(const SampleArgs& args, int64_t tile, int thread) {
  const Row row{args, args.first_row + tile, args.logits + tile * args.vocab_size,
                thread_scratch(args, thread)};
  const SampleRows& rows = *args.rows;
  const int64_t i = row.index;
  const float max = args.softmax->maximum(row.raw, args.vocab_size);
  const double log_sum =
      max == -kInfinity ? 0.0 : std::log(args.softmax->sum_exp(row.raw, args.vocab_size, max, 1.0f));
  const int32_t token = choose(row, max);
  rows.tokens[i] = token;
  rows.logprobs[i] = logprob(row.raw[token], max, log_sum);
  if (rows.num_top[i] == 0) return;
  const int64_t count =
      best(row, row.raw, std::min<int64_t>(rows.num_top[i], args.vocab_size), row.scratch.candidates);
  for (int64_t c = 0; c < count; ++c) {
    rows.top_ids[i * rows.top_stride + c] = row.scratch.candidates[c].token;
    rows.top_logprobs[i * rows.top_stride + c] = logprob(row.scratch.candidates[c].logit, max, log_sum);
  }
}

}  // namespace paceline
