// Attention with AVX2: 8 keys or 8 head elements a vector, all products in float32 with fused multiply-adds.
// K and V in bfloat16 become float32 as they are read, by a shift or a mask; queries and weights, rounded to
// bfloat16 as with the other instruction sets, are spread to float32 once a piece, so that a factor is a
// broadcasting load.
#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#include "attention_tile.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

namespace paceline {
namespace {

constexpr int kGroupVectors = kGroupKeys / 8;

// Vectors of one query's sums in registers: as many sums in all as stay there (12 for 3 queries don't: 70 %).
template <int Q>
constexpr int kVectors = Q == 1   ? 8
                         : Q == 2 ? 4
                                  : 2;

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

// As in attention_avx512.cpp: each product fetches what the next one reads, into the second-level cache.
inline void prefetch(const uint32_t* line) { _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T1); }

inline __m256i load_units(const uint32_t* units) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(units));
}

// Element `part` of every unit.
template <KvFormat format>
inline __m256 elements(__m256i units, int part) {
  if (format == KvFormat::kFloat32) return _mm256_castsi256_ps(units);
  if (part == 0) return _mm256_castsi256_ps(_mm256_slli_epi32(units, 16));
  return _mm256_castsi256_ps(_mm256_and_si256(units, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}

template <KvFormat format>
constexpr int kUnitElements = format == KvFormat::kBfloat16 ? 2 : 1;

// sums[q][n] += factors of query q * vector n, with the fewer of the two in registers.
template <int Q, int N, class Factor, class Vector>
ALWAYS_INLINE void multiply_add(__m256 (&sums)[Q][N], Factor factor, Vector vector) {
  if constexpr (Q < N) {
    __m256 factors[Q];
#pragma GCC unroll 6
    for (int q = 0; q < Q; ++q) factors[q] = factor(q);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      const __m256 lanes = vector(n);
#pragma GCC unroll 6
      for (int q = 0; q < Q; ++q) sums[q][n] = _mm256_fmadd_ps(factors[q], lanes, sums[q][n]);
    }
  } else {
    __m256 lanes[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) lanes[n] = vector(n);
#pragma GCC unroll 6
    for (int q = 0; q < Q; ++q) {
      const __m256 broadcast = factor(q);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sums[q][n] = _mm256_fmadd_ps(broadcast, lanes[n], sums[q][n]);
    }
  }
}

// sums[q][n] += sum over u < count of the elements of units u, vector n, each times its factor of query q.
template <KvFormat format, int Q, int N, class Load>
ALWAYS_INLINE void add_products(__m256 (&sums)[Q][N], const float* factors, int64_t stride, int64_t count,
                                Load load) {
  for (int64_t u = 0; u < count; ++u, factors += kUnitElements<format>) {
#pragma GCC unroll 2
    for (int part = 0; part < kUnitElements<format>; ++part)
      multiply_add(
          sums, [&](int q) { return _mm256_broadcast_ss(factors + q * stride + part); },
          [&](int n) { return elements<format>(load(u, n, part == 0), part); });
  }
}

// The lanes of 8 keys from `key` on that a query sees.
inline __m256 visible_lanes(KeyRange seen, int64_t key) {
  const __m256i keys =
      _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(key)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  return _mm256_castsi256_ps(_mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(seen.low), keys),
                                                 _mm256_cmpgt_epi32(_mm256_set1_epi32(seen.high), keys)));
}

// The score of 8 keys from `key` on for query `q`, in units of log 2.
inline __m256 final_score(const PieceTask& task, int q, int64_t key, __m256 sum) {
  __m256 score = _mm256_mul_ps(sum, _mm256_set1_ps(task.scale.scale));
  if (task.scale.capped) score = _mm256_mul_ps(_mm256_set1_ps(task.scale.tanh_scale), tanh_of(score));
  if (task.all_visible) return score;
  return _mm256_blendv_ps(_mm256_set1_ps(-__builtin_inff()), score, visible_lanes(task.visible[q], key));
}

// Scores of Q queries for the N vectors of keys from group `g` on, and the largest of each lane so far.
template <KvFormat format, int Q, int N>
inline void score_groups(const PieceTask& task, const float* queries, int64_t g, __m256* largest) {
  __m256 sums[Q][N] = {};
  const uint32_t* groups[N / kGroupVectors];
  for (int i = 0; i < N / kGroupVectors; ++i) groups[i] = task.groups[g + i];
  const auto load = [&](int64_t u, int n, bool first) {
    const uint32_t* units = groups[n / kGroupVectors] + u * kGroupKeys;
    if (first && n % kGroupVectors == 0) prefetch(units + task.value_offset);
    return load_units(units + n % kGroupVectors * 8);
  };
  add_products<format>(sums, queries, kMaxHeadWidth, task.query_units, load);
#pragma GCC unroll 6
  for (int q = 0; q < Q; ++q) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      const int64_t key = g * kGroupKeys + 8 * n;
      const __m256 score = final_score(task, q, key, sums[q][n]);
      largest[q] = _mm256_max_ps(largest[q], score);
      _mm256_store_ps(task.scores + q * kPieceKeys + key, score);
    }
  }
}

template <KvFormat format, int Q>
inline void score_keys(const PieceTask& task, __m256* largest) {
  float queries[Q][kMaxHeadWidth];
  for (int q = 0; q < Q; ++q) {
    const uint32_t* units = task.queries + q * task.query_units;
    for (int64_t u = 0; u < task.query_units; ++u)
      for (int part = 0; part < kUnitElements<format>; ++part) {
        const uint32_t bits = format == KvFormat::kFloat32 ? units[u]
                              : part                       ? units[u] & 0xffff0000u
                                                           : units[u] << 16;
        std::memcpy(&queries[q][u * kUnitElements<format> + part], &bits, sizeof bits);
      }
  }
  constexpr int kGroups = kVectors<Q> / kGroupVectors;
  int64_t g = task.first_group;
  for (; g + kGroups <= task.end_group; g += kGroups)
    score_groups<format, Q, kVectors<Q>>(task, queries[0], g, largest);
  for (; g < task.end_group; ++g) score_groups<format, Q, kGroupVectors>(task, queries[0], g, largest);
}

inline float largest_lane(__m256 x) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

// To nearest even.
inline __m256 rounded_to_bfloat16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  return _mm256_castsi256_ps(_mm256_and_si256(up, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}

// Weights 2^(score - largest) of one query, rounded as they multiply V, into `weights`; their sums by 16
// lanes into `sums`.
template <KvFormat format>
inline void weigh_keys(const PieceTask& task, const float* scores, float largest, float* weights,
                       float* sums) {
  __m256 lanes[kGroupVectors] = {};
  for (int64_t key = task.first_group * kGroupKeys; key < task.end_group * kGroupKeys; key += kGroupKeys)
    for (int n = 0; n < kGroupVectors; ++n) {
      __m256 weight = power(_mm256_sub_ps(_mm256_load_ps(scores + key + 8 * n), _mm256_set1_ps(largest)));
      if constexpr (format == KvFormat::kBfloat16) weight = rounded_to_bfloat16(weight);
      _mm256_store_ps(weights + key + 8 * n, weight);
      lanes[n] = _mm256_add_ps(lanes[n], weight);
    }
  for (int n = 0; n < kGroupVectors; ++n) _mm256_store_ps(sums + 8 * n, lanes[n]);
}

// Weighted V of Q queries for the 8 * N head elements from `e` on.
template <KvFormat format, int Q, int N>
inline void weigh_values(const PieceTask& task, const float* weights, int64_t e) {
  __m256 sums[Q][N] = {};
  for (int64_t g = task.first_group; g < task.end_group; ++g) {
    const uint32_t* values = task.groups[g] + task.value_offset + e;
    const uint32_t* next = task.next_groups[g] + e;
    const auto load = [&](int64_t u, int n, bool first) {
      if (first && n % 2 == 0) prefetch(next + u * task.width + 8 * n);
      return load_units(values + u * task.width + 8 * n);
    };
    add_products<format>(sums, weights + g * kGroupKeys, kPieceKeys, kGroupKeys / kUnitElements<format>,
                         load);
  }
#pragma GCC unroll 6
  for (int q = 0; q < Q; ++q) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) _mm256_store_ps(task.results + q * (task.width + 32) + e + 8 * n, sums[q][n]);
  }
}

template <KvFormat format, int Q>
void piece_of(const PieceTask& task) {
  float* weights = reinterpret_cast<float*>(task.weights);
  __m256 largest[Q];
  for (int q = 0; q < Q; ++q) largest[q] = _mm256_set1_ps(-__builtin_inff());
  score_keys<format, Q>(task, largest);
  for (int q = 0; q < Q; ++q) {
    float* sums = task.results + q * (task.width + 32) + task.width;
    sums[16] = largest_lane(largest[q]);
    weigh_keys<format>(task, task.scores + q * kPieceKeys, sums[16], weights + q * kPieceKeys, sums);
  }
  constexpr int N = kVectors<Q>;
  int64_t e = 0;
  for (; e + 8 * N <= task.width; e += 8 * N) weigh_values<format, Q, N>(task, weights, e);
  for (; e < task.width; e += 16) weigh_values<format, Q, 2>(task, weights, e);
}

template <KvFormat format, int Q = kBlockQueries>
void piece_of_queries(const PieceTask& task) {
  if constexpr (Q > 1) {
    if (task.num_queries < Q) return piece_of_queries<format, Q - 1>(task);
  }
  piece_of<format, Q>(task);
}

struct Kernel {
  template <KvFormat format>
  static void piece(const PieceTask& task) {
    piece_of_queries<format>(task);
  }

  static void merge(float* state, const float* piece, int64_t width) {
    const __m256 before = _mm256_set1_ps(state[width + 16]), now = _mm256_set1_ps(piece[width + 16]);
    const __m256 largest = _mm256_max_ps(before, now);
    const __m256 keep = power(_mm256_sub_ps(before, largest)), add = power(_mm256_sub_ps(now, largest));
    for (int64_t i = 0; i < width + 16; i += 8) {
      const __m256 kept = _mm256_mul_ps(_mm256_load_ps(state + i), keep);
      _mm256_store_ps(state + i, _mm256_fmadd_ps(_mm256_load_ps(piece + i), add, kept));
    }
    state[width + 16] = _mm256_cvtss_f32(largest);
  }

  static void finish(const float* state, int64_t head_width, float* output) {
    const float* lanes = state + padded_width(head_width);
    const __m256 sums = _mm256_add_ps(_mm256_load_ps(lanes), _mm256_load_ps(lanes + 8));
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    const float total = _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
    for (int64_t e = 0; e < head_width; ++e) output[e] = state[e] / total;
  }
};

}  // namespace

void avx2::attend(const AttendArgs& args, int64_t tile, int thread) {
  attend_tile<Kernel>(args, tile, thread);
}

}  // namespace paceline

#endif
