// Linear layers with AVX2. A panel is four vectors of 8 outputs; up to four rows are summed at a time.
//
// vpmaddubsw adds two products and saturates at int16, so 4-bit and 8-bit numbers go different ways. 16
// products of a 4-bit number are at most 16 * 15 * 127, which int16 holds: a whole group is summed before one
// vpmaddwd widens it, two instructions a step. 8-bit numbers are taken as signed, |w| * (q with the sign of
// w): 2 * 128 * 127 is within int16 too, and every step is widened, four instructions (as two halves of 4
// bits it ran at 72 %).
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "linear_walk.h"

namespace paceline {
namespace {

constexpr int kPanelVectors = kPanelOutputs / 8;
constexpr int64_t kQuadBytes = 4 * kPanelOutputs;

ALWAYS_INLINE __m256i load_bytes(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

ALWAYS_INLINE __m256i broadcast_quad(const int8_t* quad) {
  int32_t value;
  std::memcpy(&value, quad, sizeof value);
  return _mm256_set1_epi32(value);
}

// sums += numbers * the quad of every row, in int16.
template <int R, int V>
ALWAYS_INLINE void add_quad(__m256i (&sums)[R][V], const __m256i (&numbers)[V], const int8_t* quad,
                            int64_t stride) {
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const __m256i activations = broadcast_quad(quad + r * stride);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      sums[r][v] = _mm256_add_epi16(sums[r][v], _mm256_maddubs_epi16(numbers[v], activations));
  }
}

// The low (shift 0) or the high 4 bits (shift 4) of V vectors of bytes, times the quad of every row.
template <int R, int V>
ALWAYS_INLINE void add_nibbles(__m256i (&sums)[R][V], const uint8_t* bytes, int shift, const int8_t* quad,
                               int64_t stride) {
  __m256i numbers[V];
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v)
    numbers[v] = _mm256_and_si256(_mm256_srli_epi16(load_bytes(bytes + 32 * v), shift), _mm256_set1_epi8(15));
  add_quad(sums, numbers, quad, stride);
}

ALWAYS_INLINE void add_pairs(__m256i& sum, __m256i pairs) {
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// The low nibbles of a record are the quads 2j, the high ones 2j + 1: one sum.
template <class F, int R, int V>
ALWAYS_INLINE void sum_nibbles(__m256i (&sums)[R][V], const uint8_t* values, const int8_t* q,
                               int64_t stride) {
  static_assert(F::group / 2 * 15 * 127 <= INT16_MAX);
  __m256i pairs[R][V];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) pairs[r][v] = _mm256_setzero_si256();
  }
#pragma GCC unroll 1
  for (int j = 0; j < F::group / 8; ++j) {
    add_nibbles(pairs, values + j * kQuadBytes, 0, q + 8 * j, stride);
    add_nibbles(pairs, values + j * kQuadBytes, 4, q + 8 * j + 4, stride);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) add_pairs(sums[r][v], pairs[r][v]);
  }
}

template <class F, int R, int V>
ALWAYS_INLINE void sum_bytes(__m256i (&sums)[R][V], const uint8_t* values, const int8_t* q, int64_t stride) {
#pragma GCC unroll 1
  for (int j = 0; j < F::group / 4; ++j) {
    __m256i numbers[V], magnitudes[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      numbers[v] = _mm256_xor_si256(load_bytes(values + j * kQuadBytes + 32 * v), _mm256_set1_epi8(-128));
      magnitudes[v] = _mm256_abs_epi8(numbers[v]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m256i activations = broadcast_quad(q + 4 * j + r * stride);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        const __m256i pairs = _mm256_maddubs_epi16(magnitudes[v], _mm256_sign_epi8(activations, numbers[v]));
        add_pairs(sums[r][v], pairs);
      }
    }
  }
}

// A term of the activations of some rows.
struct TermRows {
  const QuantizedRows& q;
  int64_t depth;
  int64_t row;  // the first
};

// The integer sums of V vectors of a record.
template <class F, int R, int V>
ALWAYS_INLINE void sum_record(__m256i (&sums)[R][V], const uint8_t* values, const TermRows& of, int64_t g) {
  const int64_t groups = of.depth / F::group;
  const int8_t* q = of.q.values + of.row * of.depth + g * F::group;
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    // The offsets are for numbers centred on 128; those of 4 bits are on 8.
    const bool shifted = is_nibbles<F> && F::centred;
    const int32_t start = shifted ? of.q.offsets[(of.row + r) * groups + g] / 16 : 0;
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sums[r][v] = _mm256_set1_epi32(start);
  }
  if constexpr (is_nibbles<F>)
    sum_nibbles<F>(sums, values, q, of.depth);
  else
    sum_bytes<F>(sums, values, q, of.depth);
}

template <class F>
ALWAYS_INLINE __m256 coefficient(const uint8_t* array, int vector) {
  if constexpr (F::wide) return _mm256_loadu_ps(reinterpret_cast<const float*>(array) + 8 * vector);
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(array + 16 * vector)));
}

ALWAYS_INLINE __m256 plus_product(__m256 y, __m256 a, __m256 b) {
  return _mm256_add_ps(y, _mm256_mul_ps(a, b));
}

// y += (float(sums) * s) * a, then y += m * activation sum: see linear.h. `vector` is the first of the V.
template <class F, int R, int V>
ALWAYS_INLINE void add_record(__m256 (&y)[R][V], const __m256i (&sums)[R][V], const uint8_t* coefficients,
                              const TermRows& of, int vector, int64_t g) {
  const int64_t groups = of.depth / F::group;
  const int64_t scale_groups = of.depth / activation_group(F::group);
  const int64_t scale_index = g * F::group / activation_group(F::group);
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      __m256 product = _mm256_cvtepi32_ps(sums[r][v]);
      if constexpr (!is_channel<F>)
        product = _mm256_mul_ps(product, coefficient<F>(coefficients, vector + v));
      const float activation = of.q.scales[(of.row + r) * scale_groups + scale_index];
      y[r][v] = plus_product(y[r][v], product, _mm256_set1_ps(activation));
      if constexpr (has_minimum<F>) {
        const __m256 minimum = coefficient<F>(coefficients + F::coefficients, vector + v);
        y[r][v] = plus_product(y[r][v], minimum, _mm256_set1_ps(of.q.sums[(of.row + r) * groups + g]));
      }
    }
  }
}

template <class F>
ALWAYS_INLINE __m256 weights_of(const uint8_t* record, int vector) {
  if constexpr (!F::bfloat) return _mm256_loadu_ps(reinterpret_cast<const float*>(record) + 8 * vector);
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(record + 16 * vector));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

template <int R, int V>
ALWAYS_INLINE void load_sums(__m256 (&sums)[R][V], const float (&y)[R][kPanelOutputs], int vector) {
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sums[r][v] = _mm256_loadu_ps(y[r] + 8 * (vector + v));
  }
}

template <int R, int V>
ALWAYS_INLINE void store_sums(const __m256 (&sums)[R][V], float (&y)[R][kPanelOutputs], int vector) {
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) _mm256_storeu_ps(y[r] + 8 * (vector + v), sums[r][v]);
  }
}

// Adds V vectors of outputs over the whole depth to y. Not inlined: what its next call could share with it
// costs more registers than there are.
template <class F, int R, int V>
__attribute__((noinline)) void add_quantized(float (&y)[R][kPanelOutputs], const PanelRows& at,
                                             const QuantizedRows& q, int vector) {
  const TermRows of{q, at.args.weight->depth, at.row};
  const int64_t groups = of.depth / F::group;
  const int64_t next_lines = vector == 0 ? at.next_lines : 0;
  const uint8_t* record = at.panel;
  const uint8_t* next = at.next;
  __m256 results[R][V];
  load_sums(results, y, vector);
  for (int64_t g = 0; g < groups; ++g, record += F::record) {
    prefetch(next, next_lines);
    __m256i sums[R][V];
    sum_record<F>(sums, record + 32 * vector, of, g);
    add_record<F>(results, sums, record + F::values, of, vector, g);
  }
  store_sums(results, y, vector);
}

template <class F, int R, int V>
__attribute__((noinline)) void add_floats(float (&y)[R][kPanelOutputs], const PanelRows& at, int vector) {
  const int64_t depth = at.args.weight->depth;
  const int64_t next_lines = vector == 0 ? at.next_lines : 0;
  const float* x = at.args.x + at.row * depth;
  const uint8_t* record = at.panel;
  const uint8_t* next = at.next;
  __m256 sums[R][V];
  load_sums(sums, y, vector);
  for (int64_t k = 0; k < depth; ++k, record += F::record) {
    prefetch(next, next_lines);
    __m256 weights[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) weights[v] = weights_of<F>(record, vector + v);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m256 activation = _mm256_set1_ps(x[r * depth + k]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[r][v] = plus_product(sums[r][v], weights[v], activation);
    }
  }
  store_sums(sums, y, vector);
}

template <int R>
ALWAYS_INLINE void add_outputs(float (&y)[R][kPanelOutputs], const float (&more)[R][kPanelOutputs]) {
  for (int r = 0; r < R; ++r)
    for (int64_t n = 0; n < kPanelOutputs; ++n) y[r][n] += more[r][n];
}

// y *= the scales at the end of the panel.
template <int R>
ALWAYS_INLINE void scale_outputs(float (&y)[R][kPanelOutputs], const uint8_t* scales) {
  for (int r = 0; r < R; ++r)
    for (int64_t n = 0; n < kPanelOutputs; ++n) y[r][n] *= reinterpret_cast<const float*>(scales)[n];
}

template <class F, int R>
ALWAYS_INLINE void sum_panel(float (&y)[R][kPanelOutputs], const PanelRows& at, const QuantizedRows& q) {
  constexpr int V = R <= 2 ? 4 : 2;  // 8 vectors of sums
  for (int vector = 0; vector < kPanelVectors; vector += V) {
    if constexpr (is_float<F>)
      add_floats<F, R, V>(y, at, vector);
    else
      add_quantized<F, R, V>(y, at, q, vector);
  }
}

ALWAYS_INLINE void store_outputs(const PanelRows& at, int r, int64_t panel, const float* y) {
  const int64_t outputs = at.args.weight->outputs;
  const int64_t first = panel * kPanelOutputs;
  const int64_t count = outputs - first < kPanelOutputs ? outputs - first : kPanelOutputs;
  const float* bias = at.args.bias;
  float* to = at.args.y + (at.row + r) * outputs + first;
  if (bias == nullptr) {
    std::memcpy(to, y, count * sizeof(float));
    return;
  }
  for (int64_t n = 0; n < count; ++n) to[n] = y[n] + bias[first + n];
}

struct Kernel {
  static constexpr int block_rows(int /*terms*/) { return 4; }
  static constexpr int kStreamedRows = 1;

  template <class F, int kTerms, int R>
  static void block(const PanelRows& at, int64_t panel) {
    alignas(32) float y[R][kPanelOutputs] = {};
    prefetch_results<R>(at, panel);
    sum_panel<F>(y, at, at.args.q);
    if constexpr (kTerms == 2) {
      alignas(32) float second[R][kPanelOutputs] = {};
      // Fetches the same lines ahead once more: one row takes 0.8 of the time of doing so in either pass
      // alone.
      sum_panel<F>(second, at, at.args.residual);
      add_outputs(y, second);
    }
    if constexpr (is_channel<F>) scale_outputs(y, at.panel + at.args.weight->depth * kPanelOutputs);
    for (int r = 0; r < R; ++r) store_outputs(at, r, panel, y[r]);
  }
};

}  // namespace

void avx2::linear(const LinearArgs& args, int64_t tile, int /*thread*/) { walk_tile<Kernel>(args, tile); }

}  // namespace paceline
#endif
