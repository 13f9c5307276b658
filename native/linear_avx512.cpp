// Linear layers with AVX-512 VNNI. A panel is two vectors of 16 outputs; up to kBlockRows rows are summed in
// registers while the panel's records stream by once per block of rows: from memory the first time, then from
// the nearest cache. With more than kStreamedRows rows the next panel is prefetched meanwhile, so that memory
// works during the arithmetic: into the second-level cache (the first holds this panel; with both in it 8
// rows of int8 ran at 60 %). With fewer, memory is the limit and the processor's own prefetching is best.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "linear.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

namespace paceline::avx512 {
namespace {

constexpr int kBlockRows = 6;
constexpr int64_t kLine = 64;
constexpr int64_t kStreamedRows = 4;

// One panel and a block of rows. `next` is prefetched, `next_lines` cache lines for each record.
struct PanelRows {
  const LinearArgs& args;
  const QuantizedRows& q;
  const uint8_t* panel;
  const uint8_t* next;
  int64_t next_lines;
  int64_t row;
};

template <bool kNibbles, int kGroup, bool kMinimum, bool kWide>
struct Format {
  static constexpr bool nibbles = kNibbles;
  static constexpr int group = kGroup;
  static constexpr bool minimum = kMinimum;
  // 4-bit numbers with a minimum are summed as they are; the others are centred on 128.
  static constexpr bool centred = !kNibbles || !kMinimum;
  static constexpr int vectors = 2 * kGroup / (kNibbles ? 8 : 4);
  static constexpr int coefficients = kWide ? 128 : 64;
  static constexpr int record = vectors * 64 + coefficients * (kMinimum ? 2 : 1);

  ALWAYS_INLINE __m512 coefficient(const uint8_t* array, int half) {
    if constexpr (kWide) return _mm512_load_ps(array + 64 * half);
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(array + 32 * half)));
  }
};

// CHANNEL: values alone, one scale an output at the end of the panel. `group` shares an activation scale.
template <int kGroup>
struct ChannelFormat {
  static constexpr bool nibbles = false;
  static constexpr int group = kGroup;
  static constexpr bool centred = true;
  static constexpr int vectors = 2 * kGroup / 4;
  static constexpr int record = vectors * 64;
};

template <class F>
constexpr bool is_channel = false;
template <int kGroup>
constexpr bool is_channel<ChannelFormat<kGroup>> = true;

ALWAYS_INLINE __m512i broadcast_quad(const int8_t* quad) {
  int32_t value;
  std::memcpy(&value, quad, sizeof value);
  return _mm512_set1_epi32(value);
}

ALWAYS_INLINE void prefetch(const uint8_t*& next, int64_t lines) {
  for (int64_t i = 0; i < lines; ++i, next += kLine)
    _mm_prefetch(reinterpret_cast<const char*>(next), _MM_HINT_T1);
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
  for (int v = 0; v < F::vectors; v += 2) {
    const __m512i left = _mm512_load_si512(values + 64 * v);
    const __m512i right = _mm512_load_si512(values + 64 * v + 64);
    if constexpr (!F::nibbles) {
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
    const __m512 scale = F::coefficient(coefficients, half);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512 activation = _mm512_set1_ps(q.scales[(at.row + r) * scale_groups + scale_index]);
      const __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[r][half]), scale);
      y[r][half] = _mm512_add_ps(y[r][half], _mm512_mul_ps(product, activation));
    }
    if constexpr (F::minimum) {
      const __m512 minimum = F::coefficient(coefficients + F::coefficients, half);
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
      add_record<F, R>(y, sums, record + F::vectors * 64, at, g);
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

// F32 and BF16 panels: a record is one depth position.
template <bool kBfloat>
struct FloatFormat {
  static constexpr int group = 1;
  static constexpr int record = kBfloat ? 64 : 128;

  ALWAYS_INLINE __m512 weights(const uint8_t* record, int half) {
    if constexpr (!kBfloat) return _mm512_load_ps(record + 64 * half);
    const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(record + 32 * half));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
};

template <class F, int R>
ALWAYS_INLINE void float_panel_sums(__m512 (&y)[R][2], const PanelRows& at) {
  const int64_t depth = at.args.weight->depth;
  const float* x = at.args.x + at.row * depth;
  const uint8_t* record = at.panel;
  const uint8_t* next = at.next;
  for (int64_t k = 0; k < depth; ++k, record += F::record) {
    prefetch(next, at.next_lines);
    const __m512 left = F::weights(record, 0);
    const __m512 right = F::weights(record, 1);
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

// The lines that the block will write, so that the stores at its end don't wait for them (10 % with 512
// rows).
template <int R>
ALWAYS_INLINE void prefetch_results(const PanelRows& at, int64_t panel) {
  for (int r = 0; r < R; ++r) {
    const float* y = at.args.y + (at.row + r) * at.args.weight->outputs + panel * kPanelOutputs;
    _mm_prefetch(reinterpret_cast<const char*>(y), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(y + 16), _MM_HINT_T0);
  }
}

template <class F, int R>
void block(const PanelRows& at, int64_t panel) {
  __m512 y[R][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) y[r][0] = y[r][1] = _mm512_setzero_ps();
  prefetch_results<R>(at, panel);
  if constexpr (F::group == 1) {
    float_panel_sums<F, R>(y, at);
  } else {
    panel_sums<F, R>(y, at);
    if (at.args.residual.values != nullptr)
      panel_sums<F, R>(y, {at.args, at.args.residual, at.panel, at.next, 0, at.row});
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

template <class F>
void block_of(int64_t rows, const PanelRows& at, int64_t panel) {
  switch (rows) {
    case 1:
      return block<F, 1>(at, panel);
    case 2:
      return block<F, 2>(at, panel);
    case 3:
      return block<F, 3>(at, panel);
    case 4:
      return block<F, 4>(at, panel);
    case 5:
      return block<F, 5>(at, panel);
    default:
      return block<F, kBlockRows>(at, panel);
  }
}

// Rows in blocks of nearly equal size: 8 rows are 4 + 4, not 6 + 2.
template <class F>
void tile_of(const LinearArgs& args, const LinearTile& tile) {
  const PackedWeight& weight = *args.weight;
  const int64_t bytes = panel_bytes(weight);
  const int64_t last_panel = num_panels(weight) - 1;
  const int64_t num_rows = tile.rows.end - tile.rows.begin;
  const int64_t blocks = (num_rows + kBlockRows - 1) / kBlockRows;
  const int64_t lines = (F::record + kLine * blocks - 1) / (kLine * blocks);
  const int64_t share = lines * (weight.depth / F::group) * kLine;
  for (int64_t panel = tile.panels.begin; panel < tile.panels.end; ++panel) {
    const uint8_t* data = weight.data + panel * bytes;
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t row = tile.rows.begin + num_rows * b / blocks;
      const int64_t end = tile.rows.begin + num_rows * (b + 1) / blocks;
      const bool ahead = num_rows > kStreamedRows && panel < last_panel && b * share < bytes;
      const PanelRows at{args, args.q, data, data + bytes + b * share, ahead ? lines : 0, row};
      block_of<F>(end - row, at, panel);
    }
  }
}

template <bool kMinimum, bool kWide>
void int8_tile(const LinearArgs& args, const LinearTile& tile) {
  if (args.weight->group == 16) return tile_of<Format<false, 16, kMinimum, kWide>>(args, tile);
  return tile_of<Format<false, 32, kMinimum, kWide>>(args, tile);
}

void int4_tile(const LinearArgs& args, const LinearTile& tile) {
  if (!args.weight->has_minimum) return tile_of<Format<true, 32, false, false>>(args, tile);
  if (args.weight->wide_scales) return tile_of<Format<true, 32, true, true>>(args, tile);
  return tile_of<Format<true, 32, true, false>>(args, tile);
}

}  // namespace

void linear(const LinearArgs& args, int64_t index, int /*thread*/) {
  const LinearTile tile = linear_tile(args, index);
  const PackedWeight& weight = *args.weight;
  switch (weight.kind) {
    case WeightKind::F32:
      return tile_of<FloatFormat<false>>(args, tile);
    case WeightKind::BF16:
      return tile_of<FloatFormat<true>>(args, tile);
    case WeightKind::INT4:
      return int4_tile(args, tile);
    case WeightKind::CHANNEL:
      if (weight.group == 64) return tile_of<ChannelFormat<64>>(args, tile);
      return tile_of<ChannelFormat<32>>(args, tile);
    case WeightKind::INT8:
      if (weight.has_minimum) {
        return weight.wide_scales ? int8_tile<true, true>(args, tile) : int8_tile<true, false>(args, tile);
      }
      return weight.wide_scales ? int8_tile<false, true>(args, tile) : int8_tile<false, false>(args, tile);
  }
}

}  // namespace paceline::avx512
#endif
