// Linear layers with AVX-512 VNNI. A panel is two vectors of 16 outputs; up to six sums of rows are kept in
// registers. Activations of two terms are two sums a row, side by side, so that the panel is read once for
// both: sum s is term s % kTerms of row s / kTerms.
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

// The activations of one term, from the block's first row on; `values` moves on with the records.
struct Term {
  const int8_t* values;
  const float* scales;
  const int32_t* offsets;
  const float* sums;

  Term(const QuantizedRows& q, int64_t row, int64_t depth, int64_t groups, int64_t scale_groups)
      : values(q.values + row * depth),
        scales(q.scales + row * scale_groups),
        offsets(q.offsets + row * groups),
        sums(q.sums + row * groups) {}
};

template <int kTerms, int S>
ALWAYS_INLINE void add_quad(__m512i (&sums)[S][2], __m512i left, __m512i right, const Term (&terms)[kTerms],
                            int64_t position, int64_t depth) {
#pragma GCC unroll 8
  for (int s = 0; s < S; ++s) {
    const __m512i activations = broadcast_quad(terms[s % kTerms].values + position + s / kTerms * depth);
    sums[s][0] = _mm512_dpbusd_epi32(sums[s][0], left, activations);
    sums[s][1] = _mm512_dpbusd_epi32(sums[s][1], right, activations);
  }
}

// The integer sums of one record.
template <class F, int kTerms, int S>
ALWAYS_INLINE void sum_record(__m512i (&sums)[S][2], const uint8_t* values, const Term (&terms)[kTerms],
                              int64_t depth) {
  const __m512i low_bits = _mm512_set1_epi8(15);
  const __m512i centre = _mm512_set1_epi8(120);
#pragma GCC unroll 8
  for (int v = 0; v < F::values / 64; v += 2) {
    const __m512i left = _mm512_load_si512(values + 64 * v);
    const __m512i right = _mm512_load_si512(values + 64 * v + 64);
    if constexpr (!is_nibbles<F>) {
      add_quad(sums, left, right, terms, 2 * v, depth);
      continue;
    }
    __m512i numbers[4] = {_mm512_and_si512(left, low_bits), _mm512_and_si512(right, low_bits),
                          _mm512_and_si512(_mm512_srli_epi16(left, 4), low_bits),
                          _mm512_and_si512(_mm512_srli_epi16(right, 4), low_bits)};
    if constexpr (F::centred) {
      for (__m512i& number : numbers) number = _mm512_add_epi8(number, centre);
    }
    add_quad(sums, numbers[0], numbers[1], terms, 4 * v, depth);
    add_quad(sums, numbers[2], numbers[3], terms, 4 * v + 4, depth);
  }
}

// y += (float(sums) * s) * a, then y += m * activation sum: see linear.h.
template <class F, int kTerms, int S>
ALWAYS_INLINE void add_record(__m512 (&y)[S][2], const __m512i (&sums)[S][2], const uint8_t* coefficients,
                              const Term (&terms)[kTerms], int64_t g, int64_t depth) {
  const int64_t groups = depth / F::group;
  const int64_t scale_groups = depth / kActivationGroup;
  const int64_t scale_index = g * F::group / kActivationGroup;
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const __m512 scale = coefficient<F>(coefficients, half);
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) {
      const float* scales = terms[s % kTerms].scales + s / kTerms * scale_groups;
      const __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[s][half]), scale);
      y[s][half] = _mm512_add_ps(y[s][half], _mm512_mul_ps(product, _mm512_set1_ps(scales[scale_index])));
    }
    if constexpr (F::minimum) {
      const __m512 minimum = coefficient<F>(coefficients + F::coefficients, half);
#pragma GCC unroll 8
      for (int s = 0; s < S; ++s) {
        const __m512 activation = _mm512_set1_ps(terms[s % kTerms].sums[s / kTerms * groups + g]);
        y[s][half] = _mm512_add_ps(y[s][half], _mm512_mul_ps(minimum, activation));
      }
    }
  }
}

// y += float(sums) * a.
template <int kTerms, int S>
ALWAYS_INLINE void add_group(__m512 (&y)[S][2], const __m512i (&sums)[S][2], const Term (&terms)[kTerms],
                             int64_t g, int64_t groups) {
#pragma GCC unroll 8
  for (int s = 0; s < S; ++s) {
    const __m512 activation = _mm512_set1_ps(terms[s % kTerms].scales[s / kTerms * groups + g]);
    y[s][0] = _mm512_add_ps(y[s][0], _mm512_mul_ps(_mm512_cvtepi32_ps(sums[s][0]), activation));
    y[s][1] = _mm512_add_ps(y[s][1], _mm512_mul_ps(_mm512_cvtepi32_ps(sums[s][1]), activation));
  }
}

template <class F, int kTerms, int S>
ALWAYS_INLINE void panel_sums(__m512 (&y)[S][2], const PanelRows& at, Term (&terms)[kTerms]) {
  const int64_t depth = at.args.weight->depth;
  const int64_t groups = depth / F::group;
  const uint8_t* record = at.panel;
  const uint8_t* next = at.next;
  for (int64_t g = 0; g < groups; ++g, record += F::record) {
    __m512i sums[S][2];
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) {
      const int32_t* offsets = terms[s % kTerms].offsets + s / kTerms * groups;
      sums[s][0] = F::centred ? _mm512_set1_epi32(offsets[g]) : _mm512_setzero_si512();
      sums[s][1] = sums[s][0];
    }
    prefetch(next, at.next_lines);
    sum_record<F>(sums, record, terms, depth);
    if constexpr (is_channel<F>)
      add_group(y, sums, terms, g, groups);
    else
      add_record<F>(y, sums, record + F::values, terms, g, depth);
    for (Term& term : terms) term.values += F::group;
  }
}

template <class F, int kTerms, int S>
ALWAYS_INLINE void quantized_panel_sums(__m512 (&y)[S][2], const PanelRows& at) {
  const int64_t depth = at.args.weight->depth;
  const int64_t groups = depth / F::group, scale_groups = depth / activation_group(F::group);
  const Term first(at.args.q, at.row, depth, groups, scale_groups);
  if constexpr (kTerms == 1) {
    Term terms[] = {first};
    panel_sums<F>(y, at, terms);
  } else {
    Term terms[] = {first, {at.args.residual, at.row, depth, groups, scale_groups}};
    panel_sums<F>(y, at, terms);
  }
}

// The scales at the end of a panel.
ALWAYS_INLINE __m512 channel_scale(const PanelRows& at, int half) {
  return _mm512_load_ps(at.panel + at.args.weight->depth * kPanelOutputs + 64 * half);
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
  static constexpr int block_rows(int terms) { return 6 / terms; }
  static constexpr int kStreamedRows = 4;

  template <class F, int kTerms, int R>
  static void block(const PanelRows& at, int64_t panel) {
    constexpr int S = R * kTerms;
    __m512 y[S][2];
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) y[s][0] = y[s][1] = _mm512_setzero_ps();
    prefetch_results<R>(at, panel);
    if constexpr (is_float<F>)
      float_panel_sums<F, R>(y, at);
    else
      quantized_panel_sums<F, kTerms>(y, at);
    const int64_t outputs = at.args.weight->outputs;
    for (int half = 0; half < 2; ++half) {
      const int64_t first = panel * kPanelOutputs + 16 * half;
      const __mmask16 lanes = lanes_below(outputs - first);
      const float* bias = at.args.bias;
      const __m512 added = bias ? _mm512_maskz_loadu_ps(lanes, bias + first) : _mm512_setzero_ps();
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        __m512 result = y[r * kTerms][half];
        if constexpr (kTerms == 2) result = _mm512_add_ps(result, y[r * kTerms + 1][half]);
        if constexpr (is_channel<F>) result = _mm512_mul_ps(result, channel_scale(at, half));
        if (bias) result = _mm512_add_ps(result, added);
        _mm512_mask_storeu_ps(at.args.y + (at.row + r) * outputs + first, lanes, result);
      }
    }
  }
};

}  // namespace

void avx512::linear(const LinearArgs& args, int64_t tile, int /*thread*/) { walk_tile<Kernel>(args, tile); }

}  // namespace paceline
#endif
