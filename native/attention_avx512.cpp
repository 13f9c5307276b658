// Attention with AVX-512 (vdpbf16ps for bfloat16, VNNI for int8): 16 keys or 16 head elements a vector, up to
// 6 queries x 4 vectors of sums in registers. A chunk reads each piece of K and V once from memory and then
// from the caches; a decode reads it once for all heads that share it.

#if defined(__x86_64__)

#include <type_traits>

#include "attention_int8_avx512.h"

namespace paceline {
namespace {

// float32 and bfloat16.
template <KvFormat format>
struct FloatProducts {
  static constexpr int kVectors = 4;  // of one query's sums in registers
  static constexpr bool kPairs = format == KvFormat::kBfloat16;
  static constexpr int64_t kGroupUnits = kGroupKeys / (kPairs ? 2 : 1);
  static constexpr int64_t kWeightUnits = kPieceGroups * kGroupUnits;

  static __m512 multiply_add(__m512 sum, uint32_t unit, __m512i units) {
    const __m512i wide = _mm512_set1_epi32(static_cast<int>(unit));
    if constexpr (kPairs) return _mm512_dpbf16_ps(sum, (__m512bh)wide, (__m512bh)units);
    return _mm512_fmadd_ps(_mm512_castsi512_ps(wide), _mm512_castsi512_ps(units), sum);
  }

  // Scores of Q queries for groups [g, g + G), in units of log 2, and the largest of each lane so far.
  template <int Q, int G>
  static void score_groups(const PieceTask& task, int64_t g, __m512* largest) {
    __m512 sums[Q][G];
    for (int q = 0; q < Q; ++q)
      for (int k = 0; k < G; ++k) sums[q][k] = _mm512_setzero_ps();
    for (int64_t u = 0; u < task.key_units; ++u) {
      __m512i keys[G];
      for (int k = 0; k < G; ++k) keys[k] = _mm512_loadu_si512(task.groups[g + k] + u * kGroupKeys);
      task.ahead->fetch(G);
      for (int q = 0; q < Q; ++q)
        for (int k = 0; k < G; ++k)
          sums[q][k] = multiply_add(sums[q][k], task.queries[q * task.query_units + u], keys[k]);
    }
    for (int q = 0; q < Q; ++q)
      for (int k = 0; k < G; ++k)
        largest[q] = _mm512_max_ps(largest[q], keep_score(task, q, g + k, sums[q][k]));
  }

  // Weights 2^(score - most) of query `q`, rounded as they multiply V; returns their sum by lanes.
  static __m512 weigh_keys(const PieceTask& task, int q, __m512 most) {
    const float* scores = task.scores + q * kPieceKeys;
    uint32_t* weights = task.weights + q * kWeightUnits;
    __m512 sums = _mm512_setzero_ps();
    __m256 pair_sums = _mm256_setzero_ps();
    const __m256bh ones = (__m256bh)_mm256_set1_epi16(0x3f80);
    for (int64_t g = task.first_group; g < task.end_group; ++g) {
      const __m512 weight = power(_mm512_sub_ps(_mm512_load_ps(scores + g * kGroupKeys), most));
      if constexpr (kPairs) {
        const __m256bh rounded = _mm512_cvtneps_pbh(weight);
        _mm256_store_si256(reinterpret_cast<__m256i*>(weights + g * kGroupUnits), (__m256i)rounded);
        pair_sums = _mm256_dpbf16_ps(pair_sums, rounded, ones);
      } else {
        _mm512_store_ps(weights + g * kGroupKeys, weight);
        sums = _mm512_add_ps(sums, weight);
      }
    }
    return kPairs ? _mm512_zextps256_ps512(pair_sums) : sums;
  }

  // Weighted V of Q queries for the 16 * N head elements from `e` on.
  template <int Q, int N>
  static void weigh_values(const PieceTask& task, int64_t e) {
    __m512 sums[Q][N];
    for (int q = 0; q < Q; ++q)
      for (int n = 0; n < N; ++n) sums[q][n] = _mm512_setzero_ps();
    for (int64_t g = task.first_group; g < task.end_group; ++g) {
      const uint32_t* values = task.groups[g] + task.value_offset + e;
      const uint32_t* weights = task.weights + g * kGroupUnits;
      for (int64_t u = 0; u < kGroupUnits; ++u) {
        __m512i lanes[N];
        for (int n = 0; n < N; ++n) lanes[n] = _mm512_loadu_si512(values + u * task.width + n * 16);
        for (int q = 0; q < Q; ++q)
          for (int n = 0; n < N; ++n)
            sums[q][n] = multiply_add(sums[q][n], weights[q * kWeightUnits + u], lanes[n]);
      }
    }
    for (int q = 0; q < Q; ++q)
      for (int n = 0; n < N; ++n)
        _mm512_store_ps(task.results + q * (task.width + 32) + e + n * 16, sums[q][n]);
  }
};

template <class Products, int Q>
inline void score_keys(const PieceTask& task, __m512* largest) {
  constexpr int kVectors = Products::kVectors;
  int64_t g = task.first_group;
  for (; g + kVectors <= task.end_group; g += kVectors)
    Products::template score_groups<Q, kVectors>(task, g, largest);
  for (; g + 2 <= task.end_group; g += 2) Products::template score_groups<Q, 2>(task, g, largest);
  if (g < task.end_group) Products::template score_groups<Q, 1>(task, g, largest);
}

template <class Products, int Q>
inline void weigh_values(const PieceTask& task) {
  constexpr int kVectors = Products::kVectors;
  int64_t e = 0;
  for (; e + kVectors * 16 <= task.width; e += kVectors * 16)
    Products::template weigh_values<Q, kVectors>(task, e);
  for (; e + 32 <= task.width; e += 32) Products::template weigh_values<Q, 2>(task, e);
  if (e < task.width) Products::template weigh_values<Q, 1>(task, e);
}

template <class Products, int Q>
void piece_of(const PieceTask& task) {
  __m512 largest[Q];
  for (int q = 0; q < Q; ++q) largest[q] = _mm512_set1_ps(-__builtin_inff());
  score_keys<Products, Q>(task, largest);
  for (int q = 0; q < Q; ++q) {
    float* record = task.results + q * (task.width + 32);
    const __m512 most = _mm512_set1_ps(_mm512_reduce_max_ps(largest[q]));
    _mm512_store_ps(record + task.width + 16, most);
    _mm512_store_ps(record + task.width, Products::weigh_keys(task, q, most));
  }
  weigh_values<Products, Q>(task);
}

struct Kernel {
  template <KvFormat format>
  static void piece(const PieceTask& task) {
    using Products = std::conditional_t<format == KvFormat::kInt8, Int8Products, FloatProducts<format>>;
    switch (task.num_queries) {
      case 1:
        return piece_of<Products, 1>(task);
      case 2:
        return piece_of<Products, 2>(task);
      case 3:
        return piece_of<Products, 3>(task);
      case 4:
        return piece_of<Products, 4>(task);
      case 5:
        return piece_of<Products, 5>(task);
      default:
        return piece_of<Products, kBlockQueries>(task);
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
