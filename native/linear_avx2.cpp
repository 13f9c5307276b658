// Linear layers with AVX2. A panel is four vectors of 8 outputs; up to four rows are summed at a time.
//
// vpmaddubsw saturates for 8-bit numbers, so everything is summed as 4-bit numbers: 16 products of at most 15
// * 127 fit int16, which is all positions of a group of 32, and one vpmaddwd then widens the sum. An 8-bit
// number is 16 * its high half + its low half. Two instructions a product of 4 bits, four of 8 bits; no exact
// scheme without VNNI needs fewer.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "linear_walk.h"

namespace paceline {
namespace {

constexpr int kPanelVectors = kPanelOutputs / 8;
constexpr int64_t kQuadBytes = 4 * kPanelOutputs;
constexpr int kLargestRun = 32;  // positions whose products fit int16

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
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v)
      sums[r][v] = _mm256_add_epi16(sums[r][v], _mm256_maddubs_epi16(numbers[v], activations));
  }
}

// The low and the high 4 bits of V vectors.
template <int V>
struct Nibbles {
  __m256i low[V], high[V];
};

template <int V>
ALWAYS_INLINE Nibbles<V> load_nibbles(const uint8_t* from) {
  const __m256i low_bits = _mm256_set1_epi8(15);
  Nibbles<V> numbers;
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    const __m256i both = load_bytes(from + 32 * v);
    numbers.low[v] = _mm256_and_si256(both, low_bits);
    numbers.high[v] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low_bits);
  }
  return numbers;
}

template <int R, int V>
ALWAYS_INLINE void clear(__m256i (&sums)[R][V]) {
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) sums[r][v] = _mm256_setzero_si256();
  }
}

// sums += factor * pairs.
template <int R, int V>
ALWAYS_INLINE void widen(__m256i (&sums)[R][V], const __m256i (&pairs)[R][V], int16_t factor) {
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v)
      sums[r][v] = _mm256_add_epi32(sums[r][v], _mm256_madd_epi16(pairs[r][v], _mm256_set1_epi16(factor)));
  }
}

// The low nibbles of a record are the quads 2j, the high ones 2j + 1: one sum.
template <class F, int R, int V>
ALWAYS_INLINE void sum_nibbles(__m256i (&sums)[R][V], const uint8_t* values, const int8_t* q,
                               int64_t stride) {
  static_assert(F::group <= kLargestRun);
  __m256i pairs[R][V];
  clear(pairs);
#pragma GCC unroll 4
  for (int j = 0; j < F::group / 8; ++j) {
    const Nibbles<V> numbers = load_nibbles<V>(values + j * kQuadBytes);
    add_quad(pairs, numbers.low, q + 8 * j, stride);
    add_quad(pairs, numbers.high, q + 8 * j + 4, stride);
  }
  widen(sums, pairs, 1);
}

// The nibbles of a byte are the halves of its number: two sums.
template <int kPositions, int R, int V>
ALWAYS_INLINE void sum_bytes(__m256i (&sums)[R][V], const uint8_t* values, const int8_t* q, int64_t stride) {
  static_assert(kPositions <= kLargestRun);
  __m256i low[R][V], high[R][V];
  clear(low);
  clear(high);
#pragma GCC unroll 8
  for (int j = 0; j < kPositions / 4; ++j) {
    const Nibbles<V> numbers = load_nibbles<V>(values + j * kQuadBytes);
    add_quad(low, numbers.low, q + 4 * j, stride);
    add_quad(high, numbers.high, q + 4 * j, stride);
  }
  widen(sums, low, 1);
  widen(sums, high, 16);
}

// What centring takes off: 8 or 128 times the sum of the activations.
template <class F>
ALWAYS_INLINE int32_t centre(int32_t offset) {
  if (!F::centred) return 0;
  return F::nibbles ? offset / 16 : offset;
}

// The integer sums of V vectors of a record.
template <class F, int R, int V>
ALWAYS_INLINE void sum_record(__m256i (&sums)[R][V], const uint8_t* values, const PanelRows& at, int64_t g) {
  const int64_t depth = at.args.weight->depth;
  const int64_t groups = depth / F::group;
  const int8_t* q = at.q.values + at.row * depth + g * F::group;
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const int32_t offset = at.q.offsets[(at.row + r) * groups + g];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) sums[r][v] = _mm256_set1_epi32(centre<F>(offset));
  }
  if constexpr (F::nibbles) {
    sum_nibbles<F>(sums, values, q, depth);
  } else {
    constexpr int kRun = F::group < kLargestRun ? F::group : kLargestRun;
#pragma GCC unroll 2
    for (int k = 0; k < F::group; k += kRun) sum_bytes<kRun>(sums, values + k * kPanelOutputs, q + k, depth);
  }
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
ALWAYS_INLINE void add_record(__m256 (&y)[R][kPanelVectors], const __m256i (&sums)[R][V],
                              const uint8_t* record, int vector, const PanelRows& at, int64_t g) {
  const int64_t groups = at.args.weight->depth / F::group;
  const int64_t scale_groups = at.args.weight->depth / activation_group(F::group);
  const int64_t scale_index = g * F::group / activation_group(F::group);
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      __m256 product = _mm256_cvtepi32_ps(sums[r][v]);
      if constexpr (!is_channel<F>)
        product = _mm256_mul_ps(product, coefficient<F>(record + F::values, vector + v));
      const __m256 activation = _mm256_set1_ps(at.q.scales[(at.row + r) * scale_groups + scale_index]);
      __m256 sum = plus_product(y[r][vector + v], product, activation);
      if constexpr (!is_channel<F>) {
        if constexpr (F::minimum) {
          const __m256 minimum = coefficient<F>(record + F::values + F::coefficients, vector + v);
          sum = plus_product(sum, minimum, _mm256_set1_ps(at.q.sums[(at.row + r) * groups + g]));
        }
      }
      y[r][vector + v] = sum;
    }
  }
}

// y lies in memory and takes a part of each record at a time: the registers hold integer sums.
template <class F, int R>
ALWAYS_INLINE void panel_sums(__m256 (&y)[R][kPanelVectors], const PanelRows& at) {
  constexpr int V = F::nibbles ? 2 : 1;
  const int64_t groups = at.args.weight->depth / F::group;
  const uint8_t* record = at.panel;
  const uint8_t* next = at.next;
  for (int64_t g = 0; g < groups; ++g, record += F::record) {
    prefetch(next, at.next_lines);
#pragma GCC unroll 1
    for (int vector = 0; vector < kPanelVectors; vector += V) {
      __m256i sums[R][V];
      sum_record<F>(sums, record + 32 * vector, at, g);
      add_record<F>(y, sums, record, vector, at, g);
    }
  }
}

// y *= the scales at the end of the panel.
template <int R>
ALWAYS_INLINE void scale_outputs(__m256 (&y)[R][kPanelVectors], const uint8_t* scales) {
  for (int v = 0; v < kPanelVectors; ++v)
    for (int r = 0; r < R; ++r)
      y[r][v] = _mm256_mul_ps(y[r][v], _mm256_loadu_ps(reinterpret_cast<const float*>(scales) + 8 * v));
}

template <class F>
ALWAYS_INLINE __m256 weights_of(const uint8_t* record, int vector) {
  if constexpr (!F::bfloat) return _mm256_loadu_ps(reinterpret_cast<const float*>(record) + 8 * vector);
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(record + 16 * vector));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

// V vectors over the whole depth.
template <class F, int R, int V>
ALWAYS_INLINE void float_sums(__m256 (&y)[R][kPanelVectors], const PanelRows& at, int vector) {
  const int64_t depth = at.args.weight->depth;
  const float* x = at.args.x + at.row * depth;
  const uint8_t* record = at.panel;
  const uint8_t* next = at.next;
  const int64_t next_lines = vector == 0 ? at.next_lines : 0;
  __m256 sums[R][V];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sums[r][v] = _mm256_setzero_ps();
  }
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
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) y[r][vector + v] = sums[r][v];
  }
}

// Outputs [first, first + 8) of row `row`, as far as there are any.
ALWAYS_INLINE void store_outputs(const LinearArgs& args, int64_t row, int64_t first, __m256 y) {
  const int64_t outputs = args.weight->outputs;
  float* to = args.y + row * outputs + first;
  if (first + 8 <= outputs) {
    if (args.bias != nullptr) y = _mm256_add_ps(y, _mm256_loadu_ps(args.bias + first));
    _mm256_storeu_ps(to, y);
    return;
  }
  float lanes[8];
  _mm256_storeu_ps(lanes, y);
  for (int64_t i = 0; first + i < outputs; ++i)
    to[i] = args.bias != nullptr ? lanes[i] + args.bias[first + i] : lanes[i];
}

struct Kernel {
  static constexpr int kBlockRows = 4;

  template <class F, int R>
  static void block(const PanelRows& at, int64_t panel) {
    __m256 y[R][kPanelVectors] = {};
    prefetch_results<R>(at, panel);
    if constexpr (is_float<F>) {
      constexpr int V = R <= 2 ? 4 : 2;
      for (int vector = 0; vector < kPanelVectors; vector += V) float_sums<F, R, V>(y, at, vector);
    } else {
      panel_sums<F>(y, at);
      if (at.args.residual.values != nullptr)
        panel_sums<F>(y, {at.args, at.args.residual, at.panel, at.next, 0, at.row});
      if constexpr (is_channel<F>) scale_outputs(y, at.panel + at.args.weight->depth * kPanelOutputs);
    }
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < kPanelVectors; ++v)
        store_outputs(at.args, at.row + r, panel * kPanelOutputs + 8 * v, y[r][v]);
  }
};

}  // namespace

void avx2::linear(const LinearArgs& args, int64_t tile, int /*thread*/) { walk_tile<Kernel>(args, tile); }

}  // namespace paceline
#endif
