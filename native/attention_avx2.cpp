// Attention with AVX2. A chunk reads each piece of K and V once from memory and then from the caches; a
// decode reads it once for all heads that share it.
#if defined(__x86_64__)

#include "attention_avx2.h"

namespace paceline {
namespace {

constexpr int kGroupVectors = kGroupKeys / 8;
constexpr int64_t kScaleAt = 17;  // int8: in a record, behind the largest score: of the weighted V

// Vectors of one query's sums in registers: as many sums in all as stay there (12 for 3 queries don't: 70 %).
template <int Q>
constexpr int kVectors = Q == 1   ? 8
                         : Q == 2 ? 4
                                  : 2;

// The lanes of 8 keys from `key` on that a query sees.
inline __m256 visible_lanes(KeyRange seen, int64_t key) {
  const __m256i keys =
      _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(key)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  return _mm256_castsi256_ps(_mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(seen.low), keys),
                                                 _mm256_cmpgt_epi32(_mm256_set1_epi32(seen.high), keys)));
}

// The product of query `q` and 8 keys from `key` on, given its sums.
inline __m256 scaled(const PieceTask&, int, int64_t, __m256 sums) { return sums; }

inline __m256 scaled(const PieceTask& task, int q, int64_t key, __m256i sums) {
  const Int8Query query = int8_query(task.queries + q * task.query_units, task.key_units);
  const uint32_t* scales = task.groups[key / kGroupKeys] + task.key_units * kGroupKeys + key % kGroupKeys;
  return _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sums), load_floats(scales)),
                       _mm256_set1_ps(query.scale));
}

// The score in units of log 2, -inf for keys the query does not see. Stored, and returned.
inline __m256 keep_score(const PieceTask& task, int q, int64_t key, __m256 product) {
  __m256 score = _mm256_mul_ps(product, _mm256_set1_ps(task.scale.scale));
  if (task.scale.capped) score = _mm256_mul_ps(_mm256_set1_ps(task.scale.tanh_scale), tanh_of(score));
  if (!task.all_visible)
    score = _mm256_blendv_ps(_mm256_set1_ps(-__builtin_inff()), score, visible_lanes(task.visible[q], key));
  _mm256_store_ps(task.scores + q * kPieceKeys + key, score);
  return score;
}

// Scores of Q queries for the N vectors of keys from group `g` on, and the largest of each lane so far.
template <class P, int Q, int N>
inline void score_groups(const PieceTask& task, const uint32_t* queries, int64_t g, __m256* largest) {
  typename P::Sum sums[Q][N] = {};
  const auto load = [&](int64_t u, int n, bool first) {
    const uint32_t* units = task.groups[g + n / kGroupVectors] + u * kGroupKeys;
    if (first && n % kGroupVectors == 0) task.ahead->fetch(1);
    return P::key(load_units(units + n % kGroupVectors * 8));
  };
  add_products<P>(sums, queries, kMaxHeadWidth, task.key_units, load);
#pragma GCC unroll 8
  for (int q = 0; q < Q; ++q) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      const int64_t key = g * kGroupKeys + 8 * n;
      largest[q] = _mm256_max_ps(largest[q], keep_score(task, q, key, scaled(task, q, key, sums[q][n])));
    }
  }
}

template <class P, int Q>
inline void score_keys(const PieceTask& task, __m256* largest) {
  uint32_t queries[Q][kMaxHeadWidth];
  for (int q = 0; q < Q; ++q)
    for (int64_t u = 0; u < task.key_units; ++u)
      for (int part = 0; part < P::kParts; ++part)
        queries[q][u * P::kParts + part] = P::factor(task.queries[q * task.query_units + u], part);
  constexpr int kGroups = kVectors<Q> / kGroupVectors;
  int64_t g = task.first_group;
  for (; g + kGroups <= task.end_group; g += kGroups)
    score_groups<P, Q, kVectors<Q>>(task, queries[0], g, largest);
  for (; g < task.end_group; ++g) score_groups<P, Q, kGroupVectors>(task, queries[0], g, largest);
}

// To nearest even.
inline __m256 rounded_to_bfloat16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  return _mm256_castsi256_ps(_mm256_and_si256(up, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}

// Calls `weigh(key, weights)` with weights 2^(score - most) of 8 keys at a time, and adds what it returns to
// `sums`, by 16 lanes.
template <class Weigh>
inline void weigh_scores(const PieceTask& task, const float* scores, float* sums, Weigh weigh) {
  const __m256 most = _mm256_set1_ps(sums[16]);
  __m256 lanes[kGroupVectors] = {};
  for (int64_t key = task.first_group * kGroupKeys; key < task.end_group * kGroupKeys; key += kGroupKeys)
    for (int n = 0; n < kGroupVectors; ++n) {
      const __m256 weight = power(_mm256_sub_ps(_mm256_load_ps(scores + key + 8 * n), most));
      lanes[n] = _mm256_add_ps(lanes[n], weigh(key + 8 * n, weight));
    }
  for (int n = 0; n < kGroupVectors; ++n) _mm256_store_ps(sums + 8 * n, lanes[n]);
}

// Words of int8 weights: of 8 numbers the pairs 0 and 2, 1 and 3, 4 and 6, 5 and 7.
inline void store_pairs(__m256i numbers, uint32_t* words) {
  const __m256i others = _mm256_slli_epi32(_mm256_shuffle_epi32(numbers, 0x0e), 16);
  const __m256i pairs = _mm256_or_si256(_mm256_and_si256(numbers, _mm256_set1_epi32(0xffff)), others);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(words),
                   _mm256_castsi256_si128(_mm256_permute4x64_epi64(pairs, 0x08)));
}

// The weights of query `q` times the scales of V in steps of a 32,767th of the largest: vpmaddwd takes 15
// bits at once, where two terms of 8 would saturate.
inline void weigh_int8(const PieceTask& task, int q, uint32_t* words, float* sums) {
  constexpr float kSteps = 32767;
  float* scores = task.scores + q * kPieceKeys;
  __m256 largest = _mm256_setzero_ps();
  weigh_scores(task, scores, sums, [&](int64_t key, __m256 weight) {
    const uint32_t* values = task.groups[key / kGroupKeys] + task.value_offset;
    const uint32_t* scales = values + kGroupKeys / 4 * task.width + key % kGroupKeys;
    const __m256 product = _mm256_mul_ps(weight, load_floats(scales));
    largest = _mm256_max_ps(largest, product);
    _mm256_store_ps(scores + key, product);
    return weight;
  });
  const Int8Scale scale = scale_of(largest_lane(largest), kSteps);
  for (int64_t key = task.first_group * kGroupKeys; key < task.end_group * kGroupKeys; key += 8) {
    const __m256 steps = _mm256_mul_ps(_mm256_load_ps(scores + key), _mm256_set1_ps(scale.inverse));
    store_pairs(_mm256_cvtps_epi32(steps), words + key / 2);
  }
  sums[kScaleAt] = scale.scale;
}

// The words of query `q`'s weights, as they multiply V; the sums of the weights into `sums`, whose largest
// score is there.
template <KvFormat format>
inline void weigh_keys(const PieceTask& task, int q, uint32_t* words, float* sums) {
  if constexpr (format == KvFormat::kInt8) return weigh_int8(task, q, words, sums);
  weigh_scores(task, task.scores + q * kPieceKeys, sums, [&](int64_t key, __m256 weight) {
    if constexpr (format == KvFormat::kBfloat16) weight = rounded_to_bfloat16(weight);
    _mm256_store_ps(reinterpret_cast<float*>(words + key), weight);
    return weight;
  });
}

// What the sums of weighted V stand for.
inline __m256 result(const float*, __m256 sums) { return sums; }

inline __m256 result(const float* weight_sums, __m256i sums) {
  return _mm256_mul_ps(_mm256_cvtepi32_ps(sums), _mm256_set1_ps(weight_sums[kScaleAt]));
}

// Weighted V of Q queries for the 8 * N head elements from `e` on.
template <class P, int Q, int N>
inline void weigh_values(const PieceTask& task, int64_t e) {
  typename P::Sum sums[Q][N] = {};
  for (int64_t g = task.first_group; g < task.end_group; ++g) {
    const uint32_t* values = task.groups[g] + task.value_offset + e;
    const auto load = [&](int64_t u, int n, bool) { return load_units(values + u * task.width + 8 * n); };
    add_products<P>(sums, task.weights + g * P::kGroupUnits * P::kParts, kPieceKeys, P::kGroupUnits, load);
  }
#pragma GCC unroll 8
  for (int q = 0; q < Q; ++q) {
    float* record = task.results + q * (task.width + 32);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) _mm256_store_ps(record + e + 8 * n, result(record + task.width, sums[q][n]));
  }
}

template <KvFormat format, int Q>
void piece_of(const PieceTask& task) {
  using P = Products<format>;
  __m256 largest[Q];
  for (int q = 0; q < Q; ++q) largest[q] = _mm256_set1_ps(-__builtin_inff());
  score_keys<P, Q>(task, largest);
  for (int q = 0; q < Q; ++q) {
    float* sums = task.results + q * (task.width + 32) + task.width;
    sums[16] = largest_lane(largest[q]);
    weigh_keys<format>(task, q, task.weights + q * kPieceKeys, sums);
  }
  constexpr int N = kVectors<Q>;
  int64_t e = 0;
  for (; e + 8 * N <= task.width; e += 8 * N) weigh_values<P, Q, N>(task, e);
  for (; e < task.width; e += 16) weigh_values<P, Q, 2>(task, e);
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
    const float total = sum_of_lanes(_mm256_add_ps(_mm256_load_ps(lanes), _mm256_load_ps(lanes + 8)));
    for (int64_t e = 0; e < head_width; ++e) output[e] = state[e] / total;
  }
};

}  // namespace

void avx2::attend(const AttendArgs& args, int64_t tile, int thread) {
  attend_tile<Kernel>(args, tile, thread);
}

}  // namespace paceline

#endif
