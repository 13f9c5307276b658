// exp in float32, plain enough that loops over it are vectorized. One result a set: with fused multiply-adds
// where the set has them.
#pragma once

#include <bit>
#include <cstdint>

namespace paceline {
namespace {

inline float multiply_add(float a, float b, float c) {
#if defined(__FMA__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

// Relative error below 3e-7 for x in [-87, 88], no meaning outside. x = n ln 2 + r with |r| <= ln 2 / 2, the
// Taylor polynomial of degree 6 in r, times 2^n. The two parts of ln 2 keep n * ln 2 exact (Cody & Waite
// 1980).
inline float exp_within(float x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const float shifted = multiply_add(x, kLog2E, kRound);
  const float n = shifted - kRound;
  const float r = multiply_add(n, -kLn2Low, multiply_add(n, -kLn2High, x));
  float p = 1.3888889e-3f;
  p = multiply_add(p, r, 8.3333333e-3f);
  p = multiply_add(p, r, 4.1666667e-2f);
  p = multiply_add(p, r, 0.16666667f);
  p = multiply_add(p, r, 0.5f);
  p = multiply_add(p, r, 1.0f);
  p = multiply_add(p, r, 1.0f);
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (exponent << 23));
}

// Outside, the value at the nearer end.
inline float exp_clamped(float x) {
  x = x > -87.0f ? x : -87.0f;
  return exp_within(x < 88.0f ? x : 88.0f);
}

constexpr int64_t kLanes = 16;

// The order in which 16 partial sums meet: halves.
inline float sum_lanes(const float* lanes) {
  float sums[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) sums[i] = lanes[i];
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

}  // namespace
}  // namespace paceline
