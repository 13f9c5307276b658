// The products of attention over an int8 KV cache with AVX-512 VNNI: see attention_int8.h for the numbers.
// Both terms of the weights go through the same registers, the high one first; the second pass finds V in the
// first-level cache.
#pragma once

#include "always_inline.h"
#include "attention_avx512.h"
#include "attention_int8.h"

namespace paceline {
namespace {

struct Int8Products {
  static constexpr int kVectors = 2;  // enough chains of sums; with more the compiler spills them
  static constexpr int64_t kTermUnits = kPieceKeys / 4;  // one term of a query's weights
  static constexpr int64_t kWeightUnits = 2 * kTermUnits;
  static constexpr int64_t kGroupUnits = kGroupKeys / 4;
  static constexpr int64_t kScaleAt = 17;  // in a record, behind the largest score: of the weighted V

  // Scores of Q queries for groups [g, g + G), in units of log 2, and the largest of each lane so far.
  template <int Q, int G>
  static void score_groups(const PieceTask& task, int64_t g, __m512* largest) {
    __m512i sums[Q][G];
#pragma GCC unroll 8
    for (int q = 0; q < Q; ++q)
#pragma GCC unroll 8
      for (int k = 0; k < G; ++k) sums[q][k] = _mm512_setzero_si512();
    for (int64_t u = 0; u < task.key_units; ++u) {
      __m512i keys[G];
#pragma GCC unroll 8
      for (int k = 0; k < G; ++k) keys[k] = _mm512_loadu_si512(task.groups[g + k] + u * kGroupKeys);
      task.ahead->fetch(G);
#pragma GCC unroll 8
      for (int q = 0; q < Q; ++q) {
        const __m512i query = _mm512_set1_epi32(static_cast<int>(task.queries[q * task.query_units + u]));
#pragma GCC unroll 8
        for (int k = 0; k < G; ++k) sums[q][k] = _mm512_dpbusd_epi32(sums[q][k], keys[k], query);
      }
    }
#pragma GCC unroll 8
    for (int q = 0; q < Q; ++q) {
      const Int8Query query = int8_query(task.queries + q * task.query_units, task.key_units);
#pragma GCC unroll 8
      for (int k = 0; k < G; ++k) {
        const __m512i product = _mm512_sub_epi32(sums[q][k], _mm512_set1_epi32(query.offset));
        const __m512 scales = _mm512_loadu_ps(task.groups[g + k] + task.key_units * kGroupKeys);
        const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(product), scales);
        const __m512 score = keep_score(task, q, g + k, _mm512_mul_ps(scaled, _mm512_set1_ps(query.scale)));
        largest[q] = _mm512_max_ps(largest[q], score);
      }
    }
  }

  // Weights 2^(score - most) of query `q` times the scales of V into `scores`; returns the weights' sum by
  // lanes.
  static __m512 weigh_scales(const PieceTask& task, float* scores, __m512 most, __m512* largest) {
    __m512 sums = _mm512_setzero_ps();
    for (int64_t g = task.first_group; g < task.end_group; ++g) {
      const uint32_t* scales = task.groups[g] + task.value_offset + kGroupUnits * task.width;
      const __m512 weight = power(_mm512_sub_ps(_mm512_load_ps(scores + g * kGroupKeys), most));
      const __m512 product = _mm512_mul_ps(weight, _mm512_loadu_ps(scales));
      sums = _mm512_add_ps(sums, weight);
      *largest = _mm512_max_ps(*largest, product);
      _mm512_store_ps(scores + g * kGroupKeys, product);
    }
    return sums;
  }

  // The weights of query `q` as they multiply V; returns their sum by lanes.
  static __m512 weigh_keys(const PieceTask& task, int q, __m512 most) {
    float* scores = task.scores + q * kPieceKeys;
    __m512 largest = _mm512_setzero_ps();
    const __m512 sums = weigh_scales(task, scores, most, &largest);
    const Int8Scale scale = scale_of(_mm512_reduce_max_ps(largest), kLargestWeight);
    auto* high = reinterpret_cast<uint8_t*>(task.weights + q * kWeightUnits);
    uint8_t* low = high + kPieceKeys;
    for (int64_t g = task.first_group; g < task.end_group; ++g) {
      const __m512 steps =
          _mm512_mul_ps(_mm512_load_ps(scores + g * kGroupKeys), _mm512_set1_ps(scale.inverse));
      const __m512i numbers = _mm512_cvtps_epi32(steps);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(high + g * kGroupKeys),
                       _mm512_cvtepi32_epi8(_mm512_srli_epi32(numbers, 8)));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(low + g * kGroupKeys), _mm512_cvtepi32_epi8(numbers));
    }
    task.results[q * (task.width + 32) + task.width + kScaleAt] = scale.scale;
    return sums;
  }

  template <int Q, int N>
  ALWAYS_INLINE void add_value_term(const PieceTask& task, int64_t e, int64_t term, __m512i (&sums)[Q][N]) {
    for (int64_t g = task.first_group; g < task.end_group; ++g) {
      const uint32_t* values = task.groups[g] + task.value_offset + e;
      const uint32_t* weights = task.weights + term * kTermUnits + g * kGroupUnits;
      for (int64_t u = 0; u < kGroupUnits; ++u) {
        __m512i lanes[N];
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) lanes[n] = _mm512_loadu_si512(values + u * task.width + n * 16);
#pragma GCC unroll 8
        for (int q = 0; q < Q; ++q) {
          const __m512i weight = _mm512_set1_epi32(static_cast<int>(weights[q * kWeightUnits + u]));
#pragma GCC unroll 8
          for (int n = 0; n < N; ++n) sums[q][n] = _mm512_dpbusd_epi32(sums[q][n], weight, lanes[n]);
        }
      }
    }
  }

  // Weighted V of Q queries for the 16 * N head elements from `e` on.
  template <int Q, int N>
  static void weigh_values(const PieceTask& task, int64_t e) {
    __m512i sums[Q][N];
#pragma GCC unroll 8
    for (int q = 0; q < Q; ++q)
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sums[q][n] = _mm512_setzero_si512();
    add_value_term<Q, N>(task, e, 0, sums);
#pragma GCC unroll 8
    for (int q = 0; q < Q; ++q)
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sums[q][n] = _mm512_slli_epi32(sums[q][n], 8);
    add_value_term<Q, N>(task, e, 1, sums);
#pragma GCC unroll 8
    for (int q = 0; q < Q; ++q) {
      float* record = task.results + q * (task.width + 32);
      const __m512 scale = _mm512_set1_ps(record[task.width + kScaleAt]);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n)
        _mm512_store_ps(record + e + n * 16, _mm512_mul_ps(_mm512_cvtepi32_ps(sums[q][n]), scale));
    }
  }
};

}  // namespace
}  // namespace paceline
