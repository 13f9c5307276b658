// Linear layers y = x W^T (+ bias) over packed weights, and the quantization of their activations.
//
// Integer weights take activations as int8 with one scale per (row, activation_group() positions), so
// `quantize` runs before them; F32 and BF16 weights take the float32 activations as they are.
//
// Exactness: every output is one chain of operations in ascending depth, whatever `rows`, the tile or the
// thread. With a the activation scale, s and m the weight's scale and minimum, per group of the weight, in
// float32:
//   y = y + (float(sum of u * q over the group, in int32) * s) * a;  y = y + m * (float(sum of q) * a)
// in that order, each operation rounded once; all instruction sets agree bit for bit. A linear with
// `residual` has a second chain, of what quantization left of the activations, quantized again (15 bits
// instead of 8), and y is the sum of the two. CHANNEL weights have one scale an output: y = y + float(sum of
// u * q) * a per group, and y = y * s at the end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pack.h"

namespace paceline {

constexpr int64_t kActivationGroup = 32;

// Positions that share an activation scale, for a weight of group `group`.
constexpr int64_t activation_group(int32_t group) {
  return group > kActivationGroup ? group : kActivationGroup;
}
constexpr int64_t kLargestGroup = 64;

// Activations of T rows quantized for a weight of depth K and group G (G = weight.group).
struct QuantizedRows {
  int8_t* values;    // [T, K], 64-byte aligned
  float* scales;     // [T, K / activation_group(G)]
  int32_t* offsets;  // [T, K / G]: -128 * sum of values, what the unsigned weight numbers add too much
  float* sums;       // [T, K / G]: scale * sum of values, the minimum's factor
};

// Bytes of one buffer that holds QuantizedRows for up to `rows` rows of `depth`, any group; 64-byte aligned
// by the caller.
size_t quantized_bytes(int64_t rows, int64_t depth);
// The pieces of that buffer.
QuantizedRows quantized_view(void* buffer, int64_t rows, int64_t depth);

// True for INT8, INT4 and CHANNEL: LinearArgs.q is read; otherwise LinearArgs.x is.
bool takes_quantized(const PackedWeight& weight);

struct QuantizeArgs {
  const float* x;  // [T, K]
  int64_t rows;    // T
  int64_t depth;   // K
  int32_t group;   // of the weight that will read it
  QuantizedRows out;
  QuantizedRows residual;  // of x - out; values nullptr: not wanted
};
int64_t quantize_tiles(const QuantizeArgs& args);
// Groups whose largest magnitude is below this are zeros: 127 / magnitude would overflow.
constexpr float kSmallestMagnitude = 0x1p-100f;

// Half-open ranges.
struct Range {
  int64_t begin, end;
};
// The rows of a tile.
Range quantize_rows(const QuantizeArgs& args, int64_t tile);

struct LinearArgs {
  const PackedWeight* weight;  // [N, K]
  const float* x;              // [T, K], F32 and BF16 weights
  QuantizedRows q;             // [T, K], the other weights
  QuantizedRows residual;      // [T, K], of what q left; values nullptr: none
  const float* bias;           // [N] or nullptr
  int64_t rows;                // T
  float* y;                    // [T, N]
};
int64_t linear_tiles(const LinearArgs& args);

// Rows of a tile, at most.
constexpr int64_t kTileRows = 256;
struct LinearTile {
  Range rows, panels;
};
LinearTile linear_tile(const LinearArgs& args, int64_t tile);

namespace portable {
void quantize(const QuantizeArgs& args, int64_t tile, int thread);
void linear(const LinearArgs& args, int64_t tile, int thread);
}  // namespace portable

#if defined(__x86_64__)
namespace avx2 {
void quantize(const QuantizeArgs& args, int64_t tile, int thread);
void linear(const LinearArgs& args, int64_t tile, int thread);
}  // namespace avx2

namespace avx512 {
void quantize(const QuantizeArgs& args, int64_t tile, int thread);
void linear(const LinearArgs& args, int64_t tile, int thread);
}  // namespace avx512
#endif

}  // namespace paceline
