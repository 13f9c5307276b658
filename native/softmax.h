// The passes over a row of logits that a sampler needs, one version an instruction set. NaN counts as
// -infinity and +infinity as the largest float, so that broken logits give a defined token and never a crash.
//
// Exactness: sums run in float32 over 16 lanes within blocks of kSoftmaxBlock, and in float64 over blocks.
// Traffic: the row once a pass, from the caches.
#pragma once

#include <cstdint>

namespace paceline {

constexpr int64_t kSoftmaxBlock = 1024;

struct Candidate {
  float logit;
  int32_t token;
};

struct SoftmaxKernels {
  // The largest of x[0, n), or -infinity.
  float (*maximum)(const float* x, int64_t n);
  // The first index in [0, n) with x >= threshold (after the replacements above), or n.
  int64_t (*find)(const float* x, int64_t n, float threshold);
  // All i with x[i] >= threshold, ascending, and x[i] (after the replacements); returns how many. `out` has
  // room for n.
  int64_t (*collect)(const float* x, int64_t n, float threshold, Candidate* out);
  // Sum of exp((x - max) * scale); max finite, at least every x. Terms below exp(-87) count as zero.
  double (*sum_exp)(const float* x, int64_t n, float max, float scale);
  // The terms themselves.
  void (*exps)(const float* x, int64_t n, float max, float scale, float* y);
};

namespace portable {
extern const SoftmaxKernels softmax;
}

#if defined(__x86_64__)
namespace avx2 {
extern const SoftmaxKernels softmax;
}

namespace avx512 {
extern const SoftmaxKernels softmax;
}
#endif

}  // namespace paceline
