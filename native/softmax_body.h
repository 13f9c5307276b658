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

inline float exp_term(float x, float max, float scale) {
  const float scaled = (defined(x) - max) * scale;
  return scaled >= -87.0f ? exp_clamped(scaled) : 0.0f;
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

inline int64_t find(const float* x, int64_t n, float threshold) {
  constexpr int64_t kStep = 64;
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    int32_t hits = 0;
    for (int64_t j = 0; j < kStep; ++j) hits += x[i + j] >= threshold;
    if (hits != 0) break;
  }
  for (; i < n; ++i)
    if (defined(x[i]) >= threshold) return i;
  return n;
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
