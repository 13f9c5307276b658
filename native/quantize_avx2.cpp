// Activation quantization with AVX2: one pass over a row, a group of 32 or 64 at a time.
#if defined(__x86_64__)
#include <immintrin.h>

#include "linear.h"

namespace paceline::avx2 {
namespace {

// Folds the lanes of a vector by `both`, which must not care about order.
template <class Both>
int32_t folded(__m256i lanes, Both both) {
  __m128i half = both(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
  half = both(half, _mm_shuffle_epi32(half, 0x4e));
  half = both(half, _mm_shuffle_epi32(half, 0xb1));
  return _mm_cvtsi128_si32(half);
}

// Largest magnitude by its bits, so that a NaN beats every number and reaches the scale.
template <int kVectors>
float largest_magnitude(const __m256 (&x)[kVectors]) {
  const __m256i magnitude_bits = _mm256_set1_epi32(0x7fffffff);
  __m256i most = _mm256_setzero_si256();
  for (const __m256& part : x)
    most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(part), magnitude_bits));
  const int32_t bits = folded(most, [](__m128i a, __m128i b) { return _mm_max_epu32(a, b); });
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
}

// Nearest integers as int8 keeps them: a NaN becomes 0.
__m256i rounded(__m256 x) { return _mm256_srai_epi32(_mm256_slli_epi32(_mm256_cvtps_epi32(x), 24), 24); }

// 32 numbers as bytes, in their order.
void store_bytes(const __m256i* numbers, int8_t* to) {
  const __m256i interleaved = _mm256_packs_epi16(_mm256_packs_epi32(numbers[0], numbers[1]),
                                                 _mm256_packs_epi32(numbers[2], numbers[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permutevar8x32_epi32(interleaved, order));
}

__m256 rest(__m256 x, __m256i values, float scale) {
  return _mm256_sub_ps(x, _mm256_mul_ps(_mm256_cvtepi32_ps(values), _mm256_set1_ps(scale)));
}

// The values at `at` of a tensor, in x, which share a scale, go to `out`; x becomes what is left of them.
template <int kVectors>
void quantize_group(__m256 (&x)[kVectors], int64_t at, int32_t group_size, const QuantizedRows& out) {
  const float largest = largest_magnitude(x);
  const bool zero = largest < kSmallestMagnitude;
  const __m256 inverse = _mm256_set1_ps(zero ? 0.0f : 127.0f / largest);
  const float scale = zero ? 0.0f : largest * (1.0f / 127.0f);
  out.scales[at / (8 * kVectors)] = scale;
  __m256i values[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    values[v] = rounded(_mm256_mul_ps(x[v], inverse));
    x[v] = rest(x[v], values[v], scale);
  }
  for (int v = 0; v < kVectors; v += 4) store_bytes(values + v, out.values + at + 8 * v);
  const int step = group_size / 8;
  for (int v = 0; v < kVectors; v += step) {
    __m256i lanes = values[v];
    for (int i = v + 1; i < v + step; ++i) lanes = _mm256_add_epi32(lanes, values[i]);
    const int32_t sum = folded(lanes, [](__m128i a, __m128i b) { return _mm_add_epi32(a, b); });
    const int64_t group = at / group_size + v / step;
    out.offsets[group] = -128 * sum;
    out.sums[group] = static_cast<float>(sum) * scale;
  }
}

template <int kVectors>
void quantize_rows_of(const QuantizeArgs& args, Range rows) {
  for (int64_t at = rows.begin * args.depth; at < rows.end * args.depth; at += 8 * kVectors) {
    __m256 x[kVectors];
    for (int v = 0; v < kVectors; ++v) x[v] = _mm256_loadu_ps(args.x + at + 8 * v);
    quantize_group(x, at, args.group, args.out);
    if (args.residual.values != nullptr) quantize_group(x, at, args.group, args.residual);
  }
}

}  // namespace

void quantize(const QuantizeArgs& args, int64_t tile, int /*thread*/) {
  const Range rows = quantize_rows(args, tile);
  if (activation_group(args.group) == kActivationGroup) return quantize_rows_of<4>(args, rows);
  quantize_rows_of<8>(args, rows);
}

}  // namespace paceline::avx2
#endif
