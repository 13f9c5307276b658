#include "blocks.h"

namespace paceline {
namespace {

// In the order of SourceKind.
constexpr SourceTraits kTraits[] = {
    {1, 4, 0, 1, 0, false, false},       // F32
    {1, 2, 0, 1, 0, false, false},       // F16
    {1, 2, 0, 1, 0, false, false},       // BF16
    {32, 18, 4, 32, 8, false, false},    // Q4_0
    {32, 20, 4, 32, 0, true, false},     // Q4_1
    {32, 22, 8, 32, 16, false, false},   // Q5_0
    {32, 24, 8, 32, 0, true, false},     // Q5_1
    {32, 34, 8, 32, 128, false, false},  // Q8_0
    {256, 144, 4, 32, 0, true, true},    // Q4_K
    {256, 176, 8, 32, 0, true, true},    // Q5_K
    {256, 210, 8, 16, 32, false, true},  // Q6_K
};

// Q4_0, Q4_1, Q5_0, Q5_1: d, [minimum], [fifth bits], 16 bytes whose low nibbles are elements 0..15,
// high 16..31.
void decode_legacy(const uint8_t* block, bool has_minimum, bool has_fifth_bit, Block& out) {
  out.scales[0] = half_to_float(load<uint16_t>(block));
  block += 2;
  out.minimums[0] = has_minimum ? half_to_float(load<uint16_t>(block)) : 0.0f;
  block += has_minimum ? 2 : 0;
  const uint32_t fifth = has_fifth_bit ? load<uint32_t>(block) : 0;
  block += has_fifth_bit ? 4 : 0;
  for (int i = 0; i < 16; ++i) {
    out.numbers[i] = block[i] & 15;
    out.numbers[16 + i] = block[i] >> 4;
  }
  if (!has_fifth_bit) return;
  for (int i = 0; i < 32; ++i) out.numbers[i] |= (fifth >> i & 1u) << 4;
}

void decode_q8_0(const uint8_t* block, Block& out) {
  out.scales[0] = half_to_float(load<uint16_t>(block));
  out.minimums[0] = 0.0f;
  for (int i = 0; i < 32; ++i) out.numbers[i] = block[2 + i] ^ 0x80;
}

// Q4_K, Q5_K: 8 groups; 6-bit scales and minimums lie in 12 bytes, the last four groups' upper bits in the
// first eight.
void decode_k_scales(const uint8_t* block, Block& out) {
  const float scale = half_to_float(load<uint16_t>(block));
  const float minimum = half_to_float(load<uint16_t>(block + 2));
  const uint8_t* packed = block + 4;
  for (int g = 0; g < 4; ++g) {
    const uint8_t first = packed[g], second = packed[4 + g], rest = packed[8 + g];
    out.scales[g] = scale * float(first & 63);
    out.minimums[g] = -(minimum * float(second & 63));
    out.scales[4 + g] = scale * float((rest & 15) | (first >> 6) << 4);
    out.minimums[4 + g] = -(minimum * float((rest >> 4) | (second >> 6) << 4));
  }
}

void decode_q4_k(const uint8_t* block, Block& out) {
  decode_k_scales(block, out);
  const uint8_t* nibbles = block + 16;
  for (int pair = 0; pair < 4; ++pair) {
    for (int i = 0; i < 32; ++i) {
      out.numbers[64 * pair + i] = nibbles[32 * pair + i] & 15;
      out.numbers[64 * pair + 32 + i] = nibbles[32 * pair + i] >> 4;
    }
  }
}

void decode_q5_k(const uint8_t* block, Block& out) {
  decode_k_scales(block, out);
  const uint8_t* fifth = block + 16;
  const uint8_t* nibbles = block + 48;
  for (int pair = 0; pair < 4; ++pair) {
    for (int i = 0; i < 32; ++i) {
      const int upper = fifth[i] >> (2 * pair);
      out.numbers[64 * pair + i] = static_cast<uint8_t>((nibbles[32 * pair + i] & 15) | (upper & 1) << 4);
      out.numbers[64 * pair + 32 + i] = static_cast<uint8_t>(nibbles[32 * pair + i] >> 4 | (upper & 2) << 3);
    }
  }
}

// Two halves of 128 elements: 64 bytes of low nibbles, 32 bytes of upper bit pairs each; 16 signed scales; d
// last.
void decode_q6_k(const uint8_t* block, Block& out) {
  const float scale = half_to_float(load<uint16_t>(block + 208));
  for (int g = 0; g < 16; ++g) {
    out.scales[g] = scale * float(static_cast<int8_t>(block[192 + g]));
    out.minimums[g] = 0.0f;
  }
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = block + 64 * half;
    const uint8_t* upper = block + 128 + 32 * half;
    uint8_t* to = out.numbers + 128 * half;
    for (int i = 0; i < 32; ++i) {
      to[i] = static_cast<uint8_t>((low[i] & 15) | (upper[i] & 3) << 4);
      to[32 + i] = static_cast<uint8_t>((low[32 + i] & 15) | (upper[i] >> 2 & 3) << 4);
      to[64 + i] = static_cast<uint8_t>(low[i] >> 4 | (upper[i] >> 4 & 3) << 4);
      to[96 + i] = static_cast<uint8_t>(low[32 + i] >> 4 | (upper[i] >> 6) << 4);
    }
  }
}

}  // namespace

const SourceTraits& traits(SourceKind kind) { return kTraits[static_cast<int>(kind)]; }

float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = half >> 10 & 31u;
  const uint32_t fraction = half & 1023u;
  if (exponent == 0) return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(fraction * 0x1p-24f));
  const uint32_t biased = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | biased << 23 | fraction << 13);
}

uint16_t exact_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const int exponent = static_cast<int>(bits >> 23 & 255u) - 112;
  const uint32_t fraction = bits & 0x7fffffu;
  if (exponent >= 31) return static_cast<uint16_t>(sign | 0x7c00u | fraction >> 13);
  if (exponent > 0) return static_cast<uint16_t>(sign | uint32_t(exponent) << 10 | fraction >> 13);
  if (exponent <= -10) return static_cast<uint16_t>(sign);
  return static_cast<uint16_t>(sign | (fraction | 0x800000u) >> (14 - exponent));
}

float bfloat_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

void decode(SourceKind kind, const uint8_t* block, Block& out) {
  switch (kind) {
    case SourceKind::Q4_0:
      return decode_legacy(block, false, false, out);
    case SourceKind::Q4_1:
      return decode_legacy(block, true, false, out);
    case SourceKind::Q5_0:
      return decode_legacy(block, false, true, out);
    case SourceKind::Q5_1:
      return decode_legacy(block, true, true, out);
    case SourceKind::Q8_0:
      return decode_q8_0(block, out);
    case SourceKind::Q4_K:
      return decode_q4_k(block, out);
    case SourceKind::Q5_K:
      return decode_q5_k(block, out);
    case SourceKind::Q6_K:
      return decode_q6_k(block, out);
    default:
      return;
  }
}

}  // namespace paceline
