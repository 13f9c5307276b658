// Activation quantization with AVX-512: one pass over a row, a group of 32 or 64 at a time.
#if defined(__x86_64__)
#include <immintrin.h>

#include "linear.h"

namespace paceline::avx512 {
namespace {

// Largest magnitude by its bits, so that a NaN beats every number and reaches the scale.
template <int kVectors>
float largest_magnitude(const __m512 (&x)[kVectors]) {
  const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
  __m512i most = _mm512_setzero_si512();
  for (const __m512& part : x)
    most = _mm512_max_epu32(most, _mm512_and_si512(_mm512_castps_si512(part), magnitude_bits));
  return _mm_cvtss_f32(
      _mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int32_t>(_mm512_reduce_max_epu32(most)))));
}

int32_t sum_of_16(__m128i values) {
  const __m128i ones = _mm_set1_epi8(1);
  __m128i sums = _mm_dpbusd_epi32(_mm_setzero_si128(), ones, values);
  sums = _mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0x4e));
  sums = _mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0xb1));
  return _mm_cvtsi128_si32(sums);
}

__m512 rest(__m512 x, __m512i values, float scale) {
  return _mm512_sub_ps(x, _mm512_mul_ps(_mm512_cvtepi32_ps(values), _mm512_set1_ps(scale)));
}

// The values at `at` of a tensor, in x, which share a scale, go to `out`; x becomes what is left of them.
template <int kVectors>
void quantize_group(__m512 (&x)[kVectors], int64_t at, int32_t group_size, const QuantizedRows& out) {
  const float largest = largest_magnitude(x);
  const bool zero = largest < kSmallestMagnitude;
  const __m512 inverse = _mm512_set1_ps(zero ? 0.0f : 127.0f / largest);
  const float scale = zero ? 0.0f : largest * (1.0f / 127.0f);
  out.scales[at / (16 * kVectors)] = scale;
  int32_t sums[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    const __m512i values = _mm512_cvtps_epi32(_mm512_mul_ps(x[v], inverse));
    const __m128i bytes = _mm512_cvtepi32_epi8(values);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out.values + at + 16 * v), bytes);
    x[v] = rest(x[v], values, scale);
    sums[v] = sum_of_16(bytes);
  }
  const int step = group_size / 16;
  for (int v = 0; v < kVectors; v += step) {
    int32_t sum = 0;
    for (int i = v; i < v + step; ++i) sum += sums[i];
    const int64_t group = at / group_size + v / step;
    out.offsets[group] = -128 * sum;
    out.sums[group] = static_cast<float>(sum) * scale;
  }
}

template <int kVectors>
void quantize_rows_of(const QuantizeArgs& args, Range rows) {
  for (int64_t at = rows.begin * args.depth; at < rows.end * args.depth; at += 16 * kVectors) {
    __m512 x[kVectors];
    for (int v = 0; v < kVectors; ++v) x[v] = _mm512_loadu_ps(args.x + at + 16 * v);
    quantize_group(x, at, args.group, args.out);
    if (args.residual.values != nullptr) quantize_group(x, at, args.group, args.residual);
  }
}

}  // namespace

void quantize(const QuantizeArgs& args, int64_t tile, int /*thread*/) {
  const Range rows = quantize_rows(args, tile);
  if (activation_group(args.group) == kActivationGroup) return quantize_rows_of<2>(args, rows);
  quantize_rows_of<4>(args, rows);
}

}  // namespace paceline::avx512
#endif
