// norm and gated, written once and compiled for each instruction set: the compiler vectorizes the loops.
#pragma once

#include "exp_body.h"
#include "rows.h"
#include "rows_tile.h"

namespace paceline {
namespace {

inline float sum_of_squares(const float* x, int64_t width) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane] * x[i + lane];
  for (int64_t lane = 0; i + lane < width; ++lane) lanes[lane] += x[i + lane] * x[i + lane];
  return sum_lanes(lanes);
}

inline void norm_tile(const NormArgs& args, int64_t tile) {
  const RowTiles tiles{args.rows, args.width};
  for (int64_t row = tiles.begin(tile); row < tiles.end(tile); ++row) {
    const float* x = args.x + row * args.width;
    if (args.residual != nullptr) {
      const float* residual = args.residual + row * args.width;
      float* __restrict sum = args.sum + row * args.width;
      for (int64_t i = 0; i < args.width; ++i) sum[i] = x[i] + residual[i];
      x = sum;
    }
    const float mean = sum_of_squares(x, args.width) / static_cast<float>(args.width);
    const float scale = 1.0f / __builtin_sqrtf(mean + args.epsilon);
    float* __restrict y = args.y + row * args.width;
    for (int64_t i = 0; i < args.width; ++i) y[i] = x[i] * scale * args.weight[i];
  }
}

inline float sigmoid(float x) { return 1.0f / (1.0f + exp_clamped(-x)); }

inline float silu(float x) { return x * sigmoid(x); }

// x / 2 * (1 + tanh(u)) = x * sigmoid(2u), u = sqrt(2 / pi) * (x + 0.044715 x^3) (Hendrycks & Gimpel 2016).
inline float gelu_tanh(float x) { return x * sigmoid(1.5957691216f * (x + 0.044715f * (x * x * x))); }

template <float (*activation)(float)>
void gated_row(const float* gate_up, int64_t width, float* __restrict y) {
  for (int64_t i = 0; i < width; ++i) y[i] = activation(gate_up[i]) * gate_up[width + i];
}

inline void gated_tile(const GatedArgs& args, int64_t tile) {
  const RowTiles tiles{args.rows, 2 * args.width};
  for (int64_t row = tiles.begin(tile); row < tiles.end(tile); ++row) {
    const float* gate_up = args.gate_up + row * 2 * args.width;
    float* y = args.y + row * args.width;
    if (args.kind == GateKind::kSilu)
      gated_row<silu>(gate_up, args.width, y);
    else
      gated_row<gelu_tanh>(gate_up, args.width, y);
  }
}

}  // namespace
}  // namespace paceline
