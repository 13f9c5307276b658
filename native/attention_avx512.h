// What the AVX-512 kernels of attention share, whatever the KV format. Internal linkage.
#pragma once

#include <immintrin.h>

#include "attention_tile.h"

namespace paceline {
namespace {

// 2^x = whole * (1 + fraction); whole = 2^n is left as n.
struct PowerParts {
  __m512 n;
  __m512 fraction;
};

inline PowerParts power_parts(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(x, n);
  __m512 p = _mm512_set1_ps(kPower6);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kPower5));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kPower4));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kPower3));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kPower2));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kPower1));
  return {n, _mm512_mul_ps(p, f)};
}

// 2^x for x <= 0; zero below 2^-149, for -inf and for NaN.
inline __m512 power(__m512 x) {
  const PowerParts parts = power_parts(_mm512_max_ps(x, _mm512_set1_ps(-151.0f)));
  return _mm512_scalef_ps(_mm512_add_ps(parts.fraction, _mm512_set1_ps(1.0f)), parts.n);
}

// tanh(x) with y = 2 x / ln 2; exact to the last bits near zero too.
inline __m512 tanh_of(__m512 y) {
  y = _mm512_max_ps(_mm512_min_ps(y, _mm512_set1_ps(40.0f)), _mm512_set1_ps(-40.0f));
  const PowerParts parts = power_parts(y);
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 whole = _mm512_scalef_ps(one, parts.n);
  const __m512 minus_one = _mm512_fmadd_ps(whole, parts.fraction, _mm512_sub_ps(whole, one));
  return _mm512_div_ps(minus_one, _mm512_add_ps(minus_one, _mm512_set1_ps(2.0f)));
}

// The keys of group `group` that a query sees, a bit each.
inline __mmask16 visible_lanes(KeyRange seen, int64_t group) {
  const auto below = [&](int32_t key) {
    const int64_t lanes = key - group * kGroupKeys;
    return lanes <= 0 ? 0u : lanes >= 16 ? 0xffffu : (1u << lanes) - 1;
  };
  return static_cast<__mmask16>(below(seen.high) & ~below(seen.low));
}

// A score of query `q` for the keys of `group`, given the product: scaled, capped, -inf for keys it does not
// see. Stored, and returned.
inline __m512 keep_score(const PieceTask& task, int q, int64_t group, __m512 product) {
  __m512 score = _mm512_mul_ps(product, _mm512_set1_ps(task.scale.scale));
  if (task.scale.capped) score = _mm512_mul_ps(_mm512_set1_ps(task.scale.tanh_scale), tanh_of(score));
  if (!task.all_visible) {
    const __mmask16 seen = visible_lanes(task.visible[q], group);
    score = _mm512_mask_blend_ps(seen, _mm512_set1_ps(-__builtin_inff()), score);
  }
  _mm512_store_ps(task.scores + q * kPieceKeys + group * kGroupKeys, score);
  return score;
}

}  // namespace
}  // namespace paceline
