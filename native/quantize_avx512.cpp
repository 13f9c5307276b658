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

// Nearest integers as int8 keeps them: a NaN becomes 0, and its scale makes the result NaN.
__m512i rounded(__m512 x) { return _mm512_srai_epi32(_mm512_slli_epi32(_mm512_cvtps_epi32(x), 24), 24); }

// Numbers within int8 as bytes in their order, and the sums of each four neighbours.
struct Bytes {
  __m512i bytes;  // the upper half is not used with two vectors
  __m512i sums;
};

Bytes pack_bytes(const __m512i (&numbers)[4]) {
  const __m512i left = _mm512_packs_epi32(numbers[0], numbers[1]);
  const __m512i right = _mm512_packs_epi32(numbers[2], numbers[3]);
  // Packing works within 128 bits: each holds four bytes of every vector.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i bytes = _mm512_permutexvar_epi32(order, _mm512_packs_epi16(left, right));
  return {bytes, _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), bytes)};
}

Bytes pack_bytes(const __m512i (&numbers)[2]) {
  return pack_bytes({numbers[0], numbers[1], _mm512_setzero_si512(), _mm512_setzero_si512()});
}

void store_bytes(int8_t* at, __m512i bytes, int count) {
  if (count == 64) return _mm512_storeu_si512(at, bytes);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm512_castsi512_si256(bytes));
}

// The sum of `size` numbers from `at` on, of the four-sums of all.
int32_t sum_of(__m512i sums, int at, int size) {
  const auto lanes = static_cast<__mmask16>(((1u << size / 4) - 1) << at / 4);
  return _mm512_mask_reduce_add_epi32(lanes, sums);
}

// The values at `at` of a tensor, in x, which share a scale, go to `out`; their numbers and scale come back.
template <int kVectors>
float quantize_group(const __m512 (&x)[kVectors], int64_t at, int32_t group_size, const QuantizedRows& out,
                     __m512i (&numbers)[kVectors]) {
  constexpr int kCount = 16 * kVectors;
  const float largest = largest_magnitude(x);
  const bool zero = largest < kSmallestMagnitude;
  const __m512 inverse = _mm512_set1_ps(zero ? 0.0f : 127.0f / largest);
  const float scale = zero ? 0.0f : largest * (1.0f / 127.0f);
  for (int v = 0; v < kVectors; ++v) numbers[v] = rounded(_mm512_mul_ps(x[v], inverse));
  const Bytes packed = pack_bytes(numbers);
  store_bytes(out.values + at, packed.bytes, kCount);
  out.scales[at / kCount] = scale;
  for (int start = 0; start < kCount; start += group_size) {
    const int32_t sum = sum_of(packed.sums, start, group_size);
    const int64_t group = (at + start) / group_size;
    out.offsets[group] = -128 * sum;
    out.sums[group] = static_cast<float>(sum) * scale;
  }
  return scale;
}

template <int kVectors>
void quantize_rows_of(const QuantizeArgs& args, Range rows) {
  for (int64_t at = rows.begin * args.depth; at < rows.end * args.depth; at += 16 * kVectors) {
    __m512 x[kVectors];
    __m512i numbers[kVectors];
    for (int v = 0; v < kVectors; ++v) x[v] = _mm512_loadu_ps(args.x + at + 16 * v);
    const __m512 scale = _mm512_set1_ps(quantize_group(x, at, args.group, args.out, numbers));
    if (args.residual.values == nullptr) continue;
    for (int v = 0; v < kVectors; ++v)
      x[v] = _mm512_sub_ps(x[v], _mm512_mul_ps(_mm512_cvtepi32_ps(numbers[v]), scale));
    quantize_group(x, at, args.group, args.residual, numbers);
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
