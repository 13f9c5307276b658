// exp in float32, plain enough that loops over it are vectorized; every instruction set gives the same bits.
#pragma once

#include <bit>
#include <cstdint>

namespace paceline {
namespace {

// Relative error below 2e-7 for x in [-87, 88]; outside, the value at the nearer end. x = n ln 2 + r with |r|
// <= ln 2 / 2, the Taylor polynomial of degree 7 in r, times 2^n. The two parts of ln 2 keep n * ln 2 exact
// (Cody & Waite 1980).
inline float exp_clamped(float x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  x = x > -87.0f ? x : -87.0f;
  x = x < 88.0f ? x : 88.0f;
  const float shifted = x * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.9841270e-4f;
  p = p * r + 1.3888889e-3f;
  p = p * r + 8.3333333e-3f;
  p = p * r + 4.1666667e-2f;
  p = p * r + 0.16666667f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  return std::bit_cast<float>(std::bit_cast<int32_t>(p) + exponent * (1 << 23));
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
