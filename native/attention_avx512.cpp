// Attention with AVX-512 (vdpbf16ps for bfloat16): 16 keys or 16 head elements a vector, up to 6 queries x 4
// vectors of sums in registers. A chunk reads each piece of K and V once from memory and then from the
// caches; a decode reads it once for all heads that share it.

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#include "attention_tile.h"

namespace paceline {
namespace {

constexpr int kVectors = 4;  // of one query's sums in registers

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

// K and V of a group have about as many lines: each product fetches what the next one reads, into the
// second-level cache (into the first it costs more than it brings). A decode meets every line for the first
// time, in blocks scattered beyond what the hardware foresees: 10 % more bytes a second.
inline void prefetch(const uint32_t* line) { _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T1); }

template <KvFormat format>
inline __m512 multiply_add(__m512 sum, uint32_t unit, __m512i units) {
  const __m512i wide = _mm512_set1_epi32(static_cast<int>(unit));
  if constexpr (format == KvFormat::kBfloat16)
    return _mm512_dpbf16_ps(sum, (__m512bh)wide, (__m512bh)units);
  else
    return _mm512_fmadd_ps(_mm512_castsi512_ps(wide), _mm512_castsi512_ps(units), sum);
}

// The keys of group `group` that a query sees, a bit each.
inline __mmask16 visible_lanes(KeyRange seen, int64_t group) {
  const auto below = [&](int32_t key) {
    const int64_t lanes = key - group * kGroupKeys;
    return lanes <= 0 ? 0u : lanes >= 16 ? 0xffffu : (1u << lanes) - 1;
  };
  return static_cast<__mmask16>(below(seen.high) & ~below(seen.low));
}

// Scores of Q queries for groups [g, g + G), in units of log 2, and the largest of each lane so far.
template <KvFormat format, int Q, int G>
inline void score_groups(const PieceTask& task, int64_t g, __m512* largest) {
  __m512 sums[Q][G];
  for (int q = 0; q < Q; ++q)
    for (int k = 0; k < G; ++k) sums[q][k] = _mm512_setzero_ps();
  for (int64_t u = 0; u < task.query_units; ++u) {
    __m512i keys[G];
    for (int k = 0; k < G; ++k) {
      keys[k] = _mm512_loadu_si512(task.groups[g + k] + u * kGroupKeys);
      prefetch(task.groups[g + k] + task.value_offset + u * kGroupKeys);
    }
    for (int q = 0; q < Q; ++q)
      for (int k = 0; k < G; ++k)
        sums[q][k] = multiply_add<format>(sums[q][k], task.queries[q * task.query_units + u], keys[k]);
  }
  for (int q = 0; q < Q; ++q)
    for (int k = 0; k < G; ++k) {
      __m512 score = _mm512_mul_ps(sums[q][k], _mm512_set1_ps(task.scale.scale));
      if (task.scale.capped) score = _mm512_mul_ps(_mm512_set1_ps(task.scale.tanh_scale), tanh_of(score));
      if (!task.all_visible) {
        const __mmask16 seen = visible_lanes(task.visible[q], g + k);
        score = _mm512_mask_blend_ps(seen, _mm512_set1_ps(-__builtin_inff()), score);
      }
      largest[q] = _mm512_max_ps(largest[q], score);
      _mm512_store_ps(task.scores + q * kPieceKeys + (g + k) * kGroupKeys, score);
    }
}

template <KvFormat format, int Q>
inline void score_keys(const PieceTask& task, __m512* largest) {
  int64_t g = task.first_group;
  for (; g + kVectors <= task.end_group; g += kVectors) score_groups<format, Q, kVectors>(task, g, largest);
  switch (task.end_group - g) {
    case 3:
      return score_groups<format, Q, 3>(task, g, largest);
    case 2:
      return score_groups<format, Q, 2>(task, g, largest);
    case 1:
      return score_groups<format, Q, 1>(task, g, largest);
  }
}

// Weights 2^(score - largest) of one query, rounded as they multiply V, into `weights`; returns their sum by
// lanes.
template <KvFormat format>
inline __m512 weigh_keys(const PieceTask& task, const float* scores, __m512 largest, uint32_t* weights) {
  __m512 sums = _mm512_setzero_ps();
  __m256 pair_sums = _mm256_setzero_ps();
  const __m256bh ones = (__m256bh)_mm256_set1_epi16(0x3f80);
  for (int64_t g = task.first_group; g < task.end_group; ++g) {
    const __m512 weight = power(_mm512_sub_ps(_mm512_load_ps(scores + g * kGroupKeys), largest));
    if constexpr (format == KvFormat::kBfloat16) {
      const __m256bh rounded = _mm512_cvtneps_pbh(weight);
      _mm256_store_si256(reinterpret_cast<__m256i*>(weights + g * kGroupKeys / 2), (__m256i)rounded);
      pair_sums = _mm256_dpbf16_ps(pair_sums, rounded, ones);
    } else {
      _mm512_store_ps(weights + g * kGroupKeys, weight);
      sums = _mm512_add_ps(sums, weight);
    }
  }
  return format == KvFormat::kBfloat16 ? _mm512_zextps256_ps512(pair_sums) : sums;
}

// Weighted V of Q queries for the 16 * N head elements from `e` on.
template <KvFormat format, int Q, int N>
inline void weigh_values(const PieceTask& task, int64_t e) {
  constexpr int64_t kUnits = kGroupKeys / (format == KvFormat::kBfloat16 ? 2 : 1);
  const int64_t row = kPieceGroups * kUnits;
  __m512 sums[Q][N];
  for (int q = 0; q < Q; ++q)
    for (int n = 0; n < N; ++n) sums[q][n] = _mm512_setzero_ps();
  for (int64_t g = task.first_group; g < task.end_group; ++g) {
    const uint32_t* values = task.groups[g] + task.value_offset + e;
    const uint32_t* weights = task.weights + g * kUnits;
    const uint32_t* next = task.next_groups[g] + e;
    for (int64_t u = 0; u < kUnits; ++u) {
      __m512i lanes[N];
      for (int n = 0; n < N; ++n) {
        lanes[n] = _mm512_loadu_si512(values + u * task.width + n * 16);
        prefetch(next + u * task.width + n * 16);
      }
      for (int q = 0; q < Q; ++q)
        for (int n = 0; n < N; ++n)
          sums[q][n] = multiply_add<format>(sums[q][n], weights[q * row + u], lanes[n]);
    }
  }
  for (int q = 0; q < Q; ++q)
    for (int n = 0; n < N; ++n)
      _mm512_store_ps(task.results + q * (task.width + 32) + e + n * 16, sums[q][n]);
}

template <KvFormat format, int Q>
void piece_of(const PieceTask& task) {
  constexpr int64_t kUnits = kPieceKeys / (format == KvFormat::kBfloat16 ? 2 : 1);
  __m512 largest[Q];
  for (int q = 0; q < Q; ++q) largest[q] = _mm512_set1_ps(-__builtin_inff());
  score_keys<format, Q>(task, largest);
  for (int q = 0; q < Q; ++q) {
    float* record = task.results + q * (task.width + 32);
    const __m512 most = _mm512_set1_ps(_mm512_reduce_max_ps(largest[q]));
    const __m512 sums =
        weigh_keys<format>(task, task.scores + q * kPieceKeys, most, task.weights + q * kUnits);
    _mm512_store_ps(record + task.width, sums);
    _mm512_store_ps(record + task.width + 16, most);
  }
  int64_t e = 0;
  for (; e + kVectors * 16 <= task.width; e += kVectors * 16) weigh_values<format, Q, kVectors>(task, e);
  switch ((task.width - e) / 16) {
    case 3:
      return weigh_values<format, Q, 3>(task, e);
    case 2:
      return weigh_values<format, Q, 2>(task, e);
    case 1:
      return weigh_values<format, Q, 1>(task, e);
  }
}

struct Kernel {
  template <KvFormat format>
  static void piece(const PieceTask& task) {
    switch (task.num_queries) {
      case 1:
        return piece_of<format, 1>(task);
      case 2:
        return piece_of<format, 2>(task);
      case 3:
        return piece_of<format, 3>(task);
      case 4:
        return piece_of<format, 4>(task);
      case 5:
        return piece_of<format, 5>(task);
      default:
        return piece_of<format, kBlockQueries>(task);
    }
  }

  static void merge(float* state, const float* piece, int64_t width) {
    const __m512 before = _mm512_set1_ps(state[width + 16]), now = _mm512_set1_ps(piece[width + 16]);
    const __m512 largest = _mm512_max_ps(before, now);
    // One of the two factors is 2^0 = 1: compute the other.
    const __m512 factor = power(_mm512_sub_ps(_mm512_min_ps(before, now), largest));
    const __mmask16 grows = _mm512_cmp_ps_mask(now, before, _CMP_GT_OQ);
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512 keep = _mm512_mask_blend_ps(grows, one, factor),
                 add = _mm512_mask_blend_ps(grows, factor, one);
    for (int64_t i = 0; i < width + 16; i += 16) {
      const __m512 kept = _mm512_mul_ps(_mm512_load_ps(state + i), keep);
      _mm512_store_ps(state + i, _mm512_fmadd_ps(_mm512_load_ps(piece + i), add, kept));
    }
    _mm512_store_ps(state + width + 16, largest);
  }

  static void finish(const float* state, int64_t head_width, float* output) {
    const __m512 total =
        _mm512_set1_ps(_mm512_reduce_add_ps(_mm512_load_ps(state + padded_width(head_width))));
    for (int64_t e = 0; e < head_width; e += 16) {
      const __mmask16 lanes = head_width - e >= 16 ? 0xffff : (1u << (head_width - e)) - 1;
      _mm512_mask_storeu_ps(output + e, lanes, _mm512_div_ps(_mm512_load_ps(state + e), total));
    }
  }
};

}  // namespace

void avx512::attend(const AttendArgs& args, int64_t tile, int thread) {
  attend_tile<Kernel>(args, tile, thread);
}

}  // namespace paceline

#endif
