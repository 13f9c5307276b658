// Activation quantization with AVX-512: one pass over a row, a group of 32 at a time.
#if defined(__x86_64__)
#include <immintrin.h>

#include "linear.h"

namespace paceline::avx512 {
namespace {

// Largest magnitude by its bits, so that a NaN beats every number and reaches the scale.
float largest_magnitude(__m512 low, __m512 high) {
  const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
  const __m512i a = _mm512_and_si512(_mm512_castps_si512(low), magnitude_bits);
  const __m512i b = _mm512_and_si512(_mm512_castps_si512(high), magnitude_bits);
  const auto largest = static_cast<int32_t>(_mm512_reduce_max_epu32(_mm512_max_epu32(a, b)));
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(largest)));
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

// The 32 values at `at` of a tensor, in low and high, go to `out`; low and high become what is left of them.
void quantize_group(__m512& low, __m512& high, int64_t at, int32_t group_size, const QuantizedRows& out) {
  const float largest = largest_magnitude(low, high);
  const bool zero = largest < kSmallestMagnitude;
  const __m512 inverse = _mm512_set1_ps(zero ? 0.0f : 127.0f / largest);
  const float scale = zero ? 0.0f : largest * (1.0f / 127.0f);
  const __m512i low_values = _mm512_cvtps_epi32(_mm512_mul_ps(low, inverse));
  const __m512i high_values = _mm512_cvtps_epi32(_mm512_mul_ps(high, inverse));
  const __m128i first = _mm512_cvtepi32_epi8(low_values), second = _mm512_cvtepi32_epi8(high_values);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out.values + at), first);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out.values + at + 16), second);
  out.scales[at / kActivationGroup] = scale;
  low = rest(low, low_values, scale);
  high = rest(high, high_values, scale);
  auto put_sum = [&](int64_t group, int32_t sum) {
    out.offsets[group] = -128 * sum;
    out.sums[group] = static_cast<float>(sum) * scale;
  };
  const int32_t first_sum = sum_of_16(first), second_sum = sum_of_16(second);
  if (group_size == 16) {
    put_sum(at / 16, first_sum);
    put_sum(at / 16 + 1, second_sum);
  } else {
    put_sum(at / 32, first_sum + second_sum);
  }
}

}  // namespace

void quantize(const QuantizeArgs& args, int64_t tile, int /*thread*/) {
  const Range rows = quantize_rows(args, tile);
  for (int64_t at = rows.begin * args.depth; at < rows.end * args.depth; at += kActivationGroup) {
    __m512 low = _mm512_loadu_ps(args.x + at), high = _mm512_loadu_ps(args.x + at + 16);
    quantize_group(low, high, at, args.group, args.out);
    if (args.residual.values != nullptr) quantize_group(low, high, at, args.group, args.residual);
  }
}

}  // namespace paceline::avx512
#endif
