// Products and functions of attention with AVX2, 8 keys or 8 head elements a vector. Internal linkage.
//
// Stored numbers are widened as they are read, a part of every unit at a time: bfloat16 to float32 by a shift
// or a mask, int8 to pairs of int16. The other side of a product (queries, weights) is spread into words of
// the same form once a piece, so that a factor is one broadcasting load.
#pragma once

#include <immintrin.h>

#include "always_inline.h"
#include "attention_tile.h"

namespace paceline {
namespace {

// 2^x = whole * (1 + fraction): whole = 2^n for the nearest n, fraction = 2^f - 1 for the rest f.
struct PowerParts {
  __m256 whole;
  __m256 fraction;
};

// For |x| <= 126.
inline PowerParts power_parts(__m256 x) {
  const __m256 n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256 f = _mm256_sub_ps(x, n);
  __m256 p = _mm256_set1_ps(kPower6);
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kPower5));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kPower4));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kPower3));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kPower2));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kPower1));
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)), _mm256_mul_ps(p, f)};
}

// 2^x for x <= 0; zero below 2^-126, for -inf and for NaN.
inline __m256 power(__m256 x) {
  const __m256 least = _mm256_set1_ps(-126.0f);
  const PowerParts parts = power_parts(_mm256_max_ps(x, least));
  const __m256 y = _mm256_fmadd_ps(parts.whole, parts.fraction, parts.whole);
  return _mm256_and_ps(y, _mm256_cmp_ps(x, least, _CMP_GE_OQ));
}

// tanh(x) with y = 2 x / ln 2; exact to the last bits near zero too.
inline __m256 tanh_of(__m256 y) {
  y = _mm256_max_ps(_mm256_min_ps(y, _mm256_set1_ps(40.0f)), _mm256_set1_ps(-40.0f));
  const PowerParts parts = power_parts(y);
  const __m256 minus_one =
      _mm256_fmadd_ps(parts.whole, parts.fraction, _mm256_sub_ps(parts.whole, _mm256_set1_ps(1.0f)));
  return _mm256_div_ps(minus_one, _mm256_add_ps(minus_one, _mm256_set1_ps(2.0f)));
}

inline float largest_lane(__m256 x) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

inline float sum_of_lanes(__m256 x) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

inline __m256i load_units(const uint32_t* units) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(units));
}

inline __m256 load_floats(const uint32_t* units) { return _mm256_castsi256_ps(load_units(units)); }

// The form in which units of a format meet factors: kParts words each, one after the other.
template <KvFormat format>
struct Products;

template <>
struct Products<KvFormat::kFloat32> {
  using Sum = __m256;
  static constexpr int kParts = 1;
  static constexpr int kGroupUnits = kGroupKeys;

  ALWAYS_INLINE __m256i key(__m256i units) { return units; }
  ALWAYS_INLINE __m256i widened(__m256i units, int /*part*/) { return units; }
  ALWAYS_INLINE uint32_t factor(uint32_t unit, int /*part*/) { return unit; }
  ALWAYS_INLINE __m256 add(__m256 sum, __m256i factor, __m256i lanes) {
    return _mm256_fmadd_ps(_mm256_castsi256_ps(factor), _mm256_castsi256_ps(lanes), sum);
  }
};

template <>
struct Products<KvFormat::kBfloat16> : Products<KvFormat::kFloat32> {
  static constexpr int kParts = 2;
  static constexpr int kGroupUnits = kGroupKeys / 2;

  ALWAYS_INLINE __m256i widened(__m256i units, int part) {
    if (part == 0) return _mm256_slli_epi32(units, 16);
    return _mm256_and_si256(units, _mm256_set1_epi32(static_cast<int>(0xffff0000u)));
  }
  ALWAYS_INLINE uint32_t factor(uint32_t unit, int part) {
    return part == 0 ? unit << 16 : unit & 0xffff0000u;
  }
};

// Words are pairs of int16: elements 0 and 2 of a unit, then 1 and 3.
template <>
struct Products<KvFormat::kInt8> {
  using Sum = __m256i;
  static constexpr int kParts = 2;
  static constexpr int kGroupUnits = kGroupKeys / 4;

  ALWAYS_INLINE __m256i key(__m256i units) {
    return _mm256_xor_si256(units, _mm256_set1_epi8(static_cast<char>(kKeyOffset)));
  }
  ALWAYS_INLINE __m256i widened(__m256i units, int part) {
    return _mm256_srai_epi16(part == 0 ? _mm256_slli_epi16(units, 8) : units, 8);
  }
  ALWAYS_INLINE uint32_t factor(uint32_t unit, int part) {
    const auto wide = [&](int byte) { return static_cast<int32_t>(static_cast<int8_t>(unit >> 8 * byte)); };
    return (static_cast<uint32_t>(wide(part)) & 0xffffu) | static_cast<uint32_t>(wide(part + 2)) << 16;
  }
  ALWAYS_INLINE __m256i add(__m256i sum, __m256i factor, __m256i lanes) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(factor, lanes));
  }
};

// sums[q][n] += factor(q) * vector(n), with the fewer of the two in registers.
template <class P, int Q, int N, class Factor, class Vector>
ALWAYS_INLINE void multiply_add(typename P::Sum (&sums)[Q][N], Factor factor, Vector vector) {
  if constexpr (Q < N) {
    __m256i factors[Q];
#pragma GCC unroll 8
    for (int q = 0; q < Q; ++q) factors[q] = factor(q);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      const __m256i lanes = vector(n);
#pragma GCC unroll 8
      for (int q = 0; q < Q; ++q) sums[q][n] = P::add(sums[q][n], factors[q], lanes);
    }
  } else {
    __m256i lanes[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) lanes[n] = vector(n);
#pragma GCC unroll 8
    for (int q = 0; q < Q; ++q) {
      const __m256i broadcast = factor(q);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sums[q][n] = P::add(sums[q][n], broadcast, lanes[n]);
    }
  }
}

// sums[q][n] += the sum over u < count of unit u of vector n times the words of query q for it. `load(u, n,
// first)` may fetch ahead where `first`.
template <class P, int Q, int N, class Load>
ALWAYS_INLINE void add_products(typename P::Sum (&sums)[Q][N], const uint32_t* words, int64_t stride,
                                int64_t count, Load load) {
  for (int64_t u = 0; u < count; ++u, words += P::kParts) {
#pragma GCC unroll 2
    for (int part = 0; part < P::kParts; ++part)
      multiply_add<P>(
          sums, [&](int q) { return _mm256_set1_epi32(static_cast<int>(words[q * stride + part])); },
          [&](int n) { return P::widened(load(u, n, part == 0), part); });
  }
}

}  // namespace
}  // namespace paceline
