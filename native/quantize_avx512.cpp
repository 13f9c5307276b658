// Activation quantization with AVX-512: sixteen groups that have a scale each at a time, so that what is one
// number a group (largest magnitude, scale, sum) is one vector for all.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>

#include "linear.h"

namespace paceline::avx512 {
namespace {

constexpr int kBatch = 16;

// kBatch groups of 16 * kVectors numbers; unless kFull, only those of `used`.
template <int kVectors, bool kFull>
struct Groups {
  static constexpr int kCount = 16 * kVectors;  // numbers in each
  const float* x;
  int64_t at;  // of x in its tensor
  __mmask16 used;

  bool has(int i) const { return kFull || (used >> i & 1); }
  __m512 vector(int i, int v) const { return _mm512_loadu_ps(x + i * kCount + 16 * v); }
};

// Lane i of the result is all lanes of vectors[i] combined by `both`, which must not care about order; the
// vectors are used up. Each of the four rounds halves how many vectors there are.
template <class Both>
__m512i folded(__m512i (&vectors)[kBatch], Both both) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    vectors[i] = both(_mm512_unpacklo_epi32(vectors[2 * i], vectors[2 * i + 1]),
                      _mm512_unpackhi_epi32(vectors[2 * i], vectors[2 * i + 1]));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    vectors[i] = both(_mm512_unpacklo_epi64(vectors[2 * i], vectors[2 * i + 1]),
                      _mm512_unpackhi_epi64(vectors[2 * i], vectors[2 * i + 1]));
#pragma GCC unroll 2
  for (int count = 2; count > 0; count /= 2) {
#pragma GCC unroll 2
    for (int i = 0; i < count; ++i)
      vectors[i] = both(_mm512_shuffle_i32x4(vectors[2 * i], vectors[2 * i + 1], 0x88),
                        _mm512_shuffle_i32x4(vectors[2 * i], vectors[2 * i + 1], 0xdd));
  }
  return vectors[0];
}

// Largest magnitude of each group by its bits, so that a NaN beats every number and reaches the scale.
template <int kVectors, bool kFull>
__m512 largest_magnitudes(const Groups<kVectors, kFull>& groups) {
  const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
  __m512i most[kBatch];
#pragma GCC unroll 16
  for (int i = 0; i < kBatch; ++i) {
    most[i] = _mm512_setzero_si512();
    if (!groups.has(i)) continue;
    for (int v = 0; v < kVectors; ++v)
      most[i] = _mm512_max_epu32(most[i],
                                 _mm512_and_si512(_mm512_castps_si512(groups.vector(i, v)), magnitude_bits));
  }
  return _mm512_castsi512_ps(folded(most, [](__m512i a, __m512i b) { return _mm512_max_epu32(a, b); }));
}

// Integers as bytes, in their order; a NaN, whose integer's low byte is 0, becomes 0. The upper half is 0
// with two vectors.
__m512i packed(const __m512i (&integers)[4]) {
  const __m512i low_byte = _mm512_set1_epi32(255);
  __m512i bytes[4];
  for (int v = 0; v < 4; ++v) bytes[v] = _mm512_and_si512(integers[v], low_byte);
  const __m512i words[2] = {_mm512_packus_epi32(bytes[0], bytes[1]), _mm512_packus_epi32(bytes[2], bytes[3])};
  // Packing works within 128 bits: each holds four bytes of every vector.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, _mm512_packus_epi16(words[0], words[1]));
}

__m512i packed(const __m512i (&integers)[2]) {
  return packed({integers[0], integers[1], _mm512_setzero_si512(), _mm512_setzero_si512()});
}

void store_bytes(int8_t* at, __m512i bytes, int count) {
  if (count == 64) return _mm512_storeu_si512(at, bytes);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm512_castsi512_si256(bytes));
}

// What is left of x when `integer` (its low byte) times `scale` stands for it.
__m512 left_of(__m512 x, __m512i integer, float scale) {
  const __m512i number = _mm512_srai_epi32(_mm512_slli_epi32(integer, 24), 24);
  return _mm512_sub_ps(x, _mm512_mul_ps(_mm512_cvtepi32_ps(number), _mm512_set1_ps(scale)));
}

// Writes sums and offsets of every group; in sums[i] each lane has four neighbours of group i.
void store_sums(__m512i (&sums)[kBatch], __m512 scales, __mmask16 used, int64_t first,
                const QuantizedRows& out) {
  const __m512i sum = folded(sums, [](__m512i a, __m512i b) { return _mm512_add_epi32(a, b); });
  _mm512_mask_storeu_epi32(out.offsets + first, used,
                           _mm512_slli_epi32(_mm512_sub_epi32(_mm512_setzero_si512(), sum), 7));
  _mm512_mask_storeu_ps(out.sums + first, used, _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scales));
}

// The same where a weight's group is half of one that shares a scale.
void store_half_sums(__m512i (&sums)[kBatch], const float* scales, __mmask16 used, int64_t first,
                     const QuantizedRows& out) {
  alignas(64) int32_t fours[kBatch];
  for (int i = 0; used >> i & 1; ++i) {
    _mm512_store_si512(fours, sums[i]);
    for (int half = 0; half < 2; ++half) {
      const int32_t* of = fours + 4 * half;
      const int32_t sum = of[0] + of[1] + of[2] + of[3];
      out.offsets[first + 2 * i + half] = -128 * sum;
      out.sums[first + 2 * i + half] = static_cast<float>(sum) * scales[i];
    }
  }
}

// The groups go to `out`; `rest`, unless nullptr, becomes what is left of them.
template <int kVectors, bool kFull>
void quantize_groups(const Groups<kVectors, kFull> groups, int32_t group, const QuantizedRows& out,
                     float* rest) {
  constexpr int kCount = 16 * kVectors;
  const __m512 largest = largest_magnitudes(groups);
  const __mmask16 is_zero = _mm512_cmp_ps_mask(largest, _mm512_set1_ps(kSmallestMagnitude), _CMP_LT_OQ);
  const auto counts = static_cast<__mmask16>(~is_zero);
  alignas(64) float inverses[kBatch], scales[kBatch];
  _mm512_store_ps(inverses, _mm512_maskz_div_ps(counts, _mm512_set1_ps(127.0f), largest));
  _mm512_store_ps(scales, _mm512_maskz_mul_ps(counts, largest, _mm512_set1_ps(1.0f / 127.0f)));
  _mm512_mask_storeu_ps(out.scales + groups.at / kCount, groups.used, _mm512_load_ps(scales));
  __m512i sums[kBatch];
#pragma GCC unroll 16
  for (int i = 0; i < kBatch; ++i) {
    sums[i] = _mm512_setzero_si512();
    if (!groups.has(i)) continue;
    __m512i integers[kVectors];
    for (int v = 0; v < kVectors; ++v)
      integers[v] = _mm512_cvtps_epi32(_mm512_mul_ps(groups.vector(i, v), _mm512_set1_ps(inverses[i])));
    const __m512i bytes = packed(integers);
    store_bytes(out.values + groups.at + i * kCount, bytes, kCount);
    sums[i] = _mm512_dpbusd_epi32(sums[i], _mm512_set1_epi8(1), bytes);
    if (rest == nullptr) continue;
    for (int v = 0; v < kVectors; ++v)
      _mm512_storeu_ps(rest + i * kCount + 16 * v, left_of(groups.vector(i, v), integers[v], scales[i]));
  }
  if (group == kCount) return store_sums(sums, _mm512_load_ps(scales), groups.used, groups.at / group, out);
  store_half_sums(sums, scales, groups.used, groups.at / group, out);
}

// The groups, and what is left of them if the caller wants it.
template <int kVectors, bool kFull>
void quantize_terms(const QuantizeArgs& args, int64_t at, __mmask16 used) {
  const Groups<kVectors, kFull> groups{args.x + at, at, used};
  if (args.residual.values == nullptr) return quantize_groups(groups, args.group, args.out, nullptr);
  alignas(64) float rest[16 * kVectors * kBatch];
  quantize_groups(groups, args.group, args.out, rest);
  quantize_groups(Groups<kVectors, kFull>{rest, at, used}, args.group, args.residual, nullptr);
}

template <int kVectors>
void quantize_rows_of(const QuantizeArgs& args, Range rows) {
  constexpr int64_t kNumbers = 16 * kVectors * kBatch;
  const int64_t end = rows.end * args.depth;
  int64_t at = rows.begin * args.depth;
  for (; at + kNumbers <= end; at += kNumbers) quantize_terms<kVectors, true>(args, at, 0xffff);
  const int64_t left = (end - at) / (16 * kVectors);
  if (left > 0) quantize_terms<kVectors, false>(args, at, static_cast<__mmask16>((1u << left) - 1));
}

}  // namespace

void quantize(const QuantizeArgs& args, int64_t tile, int /*thread*/) {
  const Range rows = quantize_rows(args, tile);
  if (activation_group(args.group) == kActivationGroup) return quantize_rows_of<2>(args, rows);
  quantize_rows_of<4>(args, rows);
}

}  // namespace paceline::avx512
#endif
