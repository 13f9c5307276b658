// Linear layers with AVX-512 VNNI. A panel is two vectors of 16 outputs; up to six rows are summed in
// registers.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "linear_walk.h"

namespace paceline {
namespace {

template <class F>
ALWAYS_INLINE __m512 coefficient(const uint8_t* array, int half) {
  if constexpr (F::wide) return _mm512_load_ps(array + 64 * half);
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(array + 32 * half)));
}

ALWAYS_INLINE __m512i broadcast_quad(const int8_t* quad) {
  int32_t value;
  std::memcpy(&value, quad, sizeof value);
  return _mm512_set1_epi32(value);
}

template <int R>
ALWAYS_INLINE void add_quad(__m512i (&sums)[R][2], __m512i left, __m512i right, const int8_t* quad,
                            int64_t stride) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const __m512i activations = broadcast_quad(quad + r * stride);
    sums[r][0] = _mm512_dpbusd_epi32(sums[r][0], left, activations);
    sums[r][1] = _mm512_dpbusd_epi32(sums[r][1], right, activations);
  }
}

// The integer sums of one record.
template <class F, int R>
ALWAYS_INLINE void sum_record(__m512i (&sums)[R][2], const uint8_t* values, const int8_t* q, int64_t stride) {
  const __m512i low_bits = _mm512_set1_epi8(15);
  const __m512i centre = _mm512_set1_epi8(120);
#pragma GCC unroll 8
  for (int v = 0; v < F::values / 64; v += 2) {
    const __m512i left = _mm512_load_si512(values + 64 * v);
    const __m512i right = _mm512_load_si512(values + 64 * v + 64);
    if constexpr (!is_nibbles<F>) {
      add_quad<R>(sums, left, right, q + 2 * v, stride);
      continue;
    }
    __m512i numbers[4] = {_mm512_and_si512(left, low_bits), _mm512_and_si512(right, low_bits),
                          _mm512_and_si512(_mm512_srli_epi16(left, 4), low_bits),
                          _mm512_and_si512(_mm512_srli_epi16(right, 4), low_bits)};
    if constexpr (F::centred) {
      for (__m512i& number : numbers) number = _mm512_add_epi8(number, centre);
    }
    add_quad<R>(sums, numbers[0], numbers[1], q + 4 * v, stride);
    add_quad<R>(sums, numbers[2], numbers[3], q + 4 * v + 4, stride);
  }
}

// y += (float(sums) * s) * a, then y += m * activation sum: see linear.h.
template <class F, int R>
ALWAYS_INLINE void add_record(__m512 (&y)[R][2], const __m512i (&sums)[R][2], const uint8_t* coefficients,
                              const PanelRows& at, int64_t g) {
  const QuantizedRows& q = at.q;
  const int64_t groups = at.args.weight->depth / F::group;
  const int64_t scale_groups = at.args.weight->depth / kActivationGroup;
  const int64_t scale_index = g * F::group / kActivationGroup;
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const __m512 scale = coefficient<F>(coefficients, half);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512 activation = _mm512_set1_ps(q.scales[(at.row + r) * scale_groups + scale_index]);
      const __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[r][half]), scale);
      y[r][half] = _mm512_add_ps(y[r][half], _mm512_mul_ps(product, activation));
    }
    if constexpr (F::minimum) {
      const __m512 minimum = coefficient<F>(coefficients + F::coefficients, half);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m512 activation = _mm512_set1_ps(q.sums[(at.row + r) * groups + g]);
        y[r][half] = _mm512_add_ps(y[r][half], _mm512_mul_ps(minimum, activation));
      }
    }
  }
}

// y += float(sums) * a.
template <class F, int R>
ALWAYS_INLINE void add_group(__m512 (&y)[R][2], const __m512i (&sums)[R][2], const float* scales,
                             int64_t groups) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const __m512 activation = _mm512_set1_ps(scales[r * groups]);
    y[r][0] = _mm512_add_ps(y[r][0], _mm512_mul_ps(_mm512_cvtepi32_ps(sums[r][0]), activation));
    y[r][1] = _mm512_add_ps(y[r][1], _mm512_mul_ps(_mm512_cvtepi32_ps(sums[r][1]), activation));
  }
}

template <class F, int R>
ALWAYS_INLINE void panel_sums(__m512 (&y)[R][2], const PanelRows& at) {
  const int64_t depth = at.args.weight->depth;
  const int64_t groups = depth / F::group;
  const int8_t* q = at.q.values + at.row * depth;
  const int32_t* offsets = at.q.offsets + at.row * groups;
  const uint8_t* record = at.panel;
  const uint8_t* next = at.next;
  for (int64_t g = 0; g < groups; ++g, record += F::record, q += F::group) {
    __m512i sums[R][2];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      sums[r][0] = F::centred ? _mm512_set1_epi32(offsets[r * groups + g]) : _mm512_setzero_si512();
      sums[r][1] = sums[r][0];
    }
    prefetch(next, at.next_lines);
    sum_record<F, R>(sums, record, q, depth);
    if constexpr (is_channel<F>)
      add_group<F, R>(y, sums, at.q.scales + at.row * groups + g, groups);
    else
      add_record<F, R>(y, sums, record + F::values, at, g);
  }
}

// y *= the scales at the end of the panel.
template <int R>
ALWAYS_INLINE void scale_outputs(__m512 (&y)[R][2], const uint8_t* scales) {
  const __m512 left = _mm512_load_ps(scales), right = _mm512_load_ps(scales + 64);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    y[r][0] = _mm512_mul_ps(y[r][0], left);
    y[r][1] = _mm512_mul_ps(y[r][1], right);
  }
}

template <class F>
ALWAYS_INLINE __m512 weights_of(const uint8_t* record, int half) {
  if constexpr (!F::bfloat) return _mm512_load_ps(record + 64 * half);
  const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(record + 32 * half));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

template <class F, int R>
ALWAYS_INLINE void float_panel_sums(__m512 (&y)[R][2], const PanelRows& at) {
  const int64_t depth = at.args.weight->depth;
  const float* x = at.args.x + at.row * depth;
  const uint8_t* record = at.panel;
  const uint8_t* next = at.next;
  for (int64_t k = 0; k < depth; ++k, record += F::record) {
    prefetch(next, at.next_lines);
    const __m512 left = weights_of<F>(record, 0);
    const __m512 right = weights_of<F>(record, 1);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512 activation = _mm512_set1_ps(x[r * depth + k]);
      y[r][0] = _mm512_add_ps(y[r][0], _mm512_mul_ps(left, activation));
      y[r][1] = _mm512_add_ps(y[r][1], _mm512_mul_ps(right, activation));
    }
  }
}

ALWAYS_INLINE __mmask16 lanes_below(int64_t count) {
  return static_cast<__mmask16>((1u << std::clamp<int64_t>(count, 0, 16)) - 1);
}

struct Kernel {
  static constexpr int kBlockRows = 6;
  static constexpr int kStreamedRows = 4;

  template <class F, int R>
  static void block(const PanelRows& at, int64_t panel) {
    __m512 y[R][2];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) y[r][0] = y[r][1] = _mm512_setzero_ps();
    prefetch_results<R>(at, panel);
    if constexpr (is_float<F>) {
      float_panel_sums<F, R>(y, at);
    } else {
      panel_sums<F, R>(y, at);
      if (at.args.residual.values != nullptr)
        panel_sums<F, R>(y, {at.args, at.args.residual, at.panel, at.next, at.next_lines_again, 0, at.row});
      if constexpr (is_channel<F>) scale_outputs<R>(y, at.panel + at.args.weight->depth * kPanelOutputs);
    }
    const int64_t outputs = at.args.weight->outputs;
    for (int half = 0; half < 2; ++half) {
      const int64_t first = panel * kPanelOutputs + 16 * half;
      const __mmask16 lanes = lanes_below(outputs - first);
      const float* bias = at.args.bias;
      const __m512 added = bias ? _mm512_maskz_loadu_ps(lanes, bias + first) : _mm512_setzero_ps();
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m512 result = bias ? _mm512_add_ps(y[r][half], added) : y[r][half];
        _mm512_mask_storeu_ps(at.args.y + (at.row + r) * outputs + first, lanes, result);
      }
    }
  }
};

}  // namespace

void avx512::linear(const LinearArgs& args, int64_t tile, int /*thread*/) { walk_tile<Kernel>(args, tile); }

}  // namespace paceline
#endif
