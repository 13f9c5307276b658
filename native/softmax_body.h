// The passes of softmax.h, written once and compiled for each instruction set: the compiler vectorizes the
// loops.
#pragma once

#include <cfloat>

#include "exp_body.h"
#include "softmax.h"

namespace paceline {
namespace {

// NaN fails every comparison.
inline float defined(float x) {
  x = x > -__builtin_inff() ? x : -__builtin_inff();
  return x < FLT_MAX ? x : FLT_MAX;
}

// NaN gives 0 and +infinity 1, as `defined` has them.
inline float exp_term(float x, float max, float scale) {
  const float scaled = (x - max) * scale;
  const float term = exp_within(scaled < 0.0f ? scaled : 0.0f);
  return scaled >= -87.0f ? term : 0.0f;
}

inline float maximum(const float* x, int64_t n) {
  float lanes[kLanes];
  for (float& lane : lanes) lane = -__builtin_inff();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
  for (int64_t lane = 0; i + lane < n; ++lane)
    lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
  float max = lanes[0];
  for (float lane : lanes) max = lane > max ? lane : max;
  return defined(max);
}

constexpr int64_t kSearchStep = 64;

inline bool any_reaches(const float* x, float threshold) {
  int32_t hits = 0;
  for (int64_t i = 0; i < kSearchStep; ++i) hits += x[i] >= threshold;
  return hits != 0;
}

inline int64_t find(const float* x, int64_t n, float threshold) {
  int64_t i = 0;
  while (i + kSearchStep <= n && !any_reaches(x + i, threshold)) i += kSearchStep;
  for (; i < n; ++i)
    if (defined(x[i]) >= threshold) return i;
  return n;
}

inline int64_t collect(const float* x, int64_t n, float threshold, Candidate* out) {
  int64_t count = 0;
  for (int64_t begin = 0; begin < n; begin += kSearchStep) {
    const int64_t end = begin + kSearchStep < n ? begin + kSearchStep : n;
    if (end == begin + kSearchStep && !any_reaches(x + begin, threshold)) continue;
    for (int64_t i = begin; i < end; ++i) {
      out[count] = {defined(x[i]), static_cast<int32_t>(i)};
      count += out[count].logit >= threshold;
    }
  }
  return count;
}

inline float sum_exp_block(const float* x, int64_t n, float max, float scale) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += exp_term(x[i + lane], max, scale);
  for (int64_t lane = 0; i + lane < n; ++lane) lanes[lane] += exp_term(x[i + lane], max, scale);
  return sum_lanes(lanes);
}

inline double sum_exp(const float* x, int64_t n, float max, float scale) {
  double sum = 0;
  for (int64_t i = 0; i < n; i += kSoftmaxBlock)
    sum += sum_exp_block(x + i, n - i < kSoftmaxBlock ? n - i : kSoftmaxBlock, max, scale);
  return sum;
}

inline void exps(const float* x, int64_t n, float max, float scale, float* __restrict y) {
  for (int64_t i = 0; i < n; ++i) y[i] = exp_term(x[i], max, scale);
}

}  // namespace
}  // namespace paceline
