// Numbers by their bits, the same on every instruction set and for every family of kernels. Internal linkage:
// included by code compiled for different instruction sets.
#pragma once

#include <bit>
#include <cstdint>

namespace paceline {
namespace {

// Nearest integer, ties to even, of |x| < 2^22: adding 1.5 * 2^23 leaves it in the low bits.
inline int32_t round_to_even(float x) {
  return std::bit_cast<int32_t>(x + 0x1.8p23f) - std::bit_cast<int32_t>(0x1.8p23f);
}

// A bfloat16, rounded to nearest, ties to even.
inline uint16_t bfloat16_bits(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// By their bits, so that a NaN beats every number and reaches the scale.
inline float largest_magnitude(const float* x, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  return std::bit_cast<float>(largest);
}

}  // namespace
}  // namespace paceline
