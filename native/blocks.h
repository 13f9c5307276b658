// Blocks of quantized checkpoint tensors (layouts of the GGUF specification), taken apart into numbers and
// coefficients.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "pack.h"

namespace paceline {

constexpr int64_t kMaxBlock = 256;

struct SourceTraits {
  int32_t block;   // elements
  int32_t bytes;   // of a block
  int32_t bits;    // of a number when packed: 4, 8, or 0 for float kinds
  int32_t group;   // elements that share a scale
  int32_t center;  // unsigned number that means zero
  bool has_minimum;
  bool wide_scales;  // scale is a product that float16 can't hold
};

const SourceTraits& traits(SourceKind kind);

// One block: unsigned numbers, and scale and minimum of each group. An element is scale * (number - center) +
// minimum.
struct Block {
  uint8_t numbers[kMaxBlock];
  float scales[16];
  float minimums[16];
};

// Not for float kinds.
void decode(SourceKind kind, const uint8_t* block, Block& out);

float half_to_float(uint16_t half);
// Only for values that came from a float16, so nothing is rounded.
uint16_t exact_half(float value);
float bfloat_to_float(uint16_t bits);

template <class T>
T load(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void store(uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

}  // namespace paceline
