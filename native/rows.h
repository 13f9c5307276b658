// Operations that treat each row of activations by itself: embedding, norms, the gate, gathering rows.
//
// Exactness: a row's sums run over 16 lanes, then over the lanes by halves; the order depends on the width
// alone. Traffic: each operand once.
#pragma once

#include <cstdint>

#include "pack.h"

namespace paceline {

struct EmbedArgs {
  const PackedWeight* table;  // [V, D]
  const int32_t* tokens;      // [T]
  int64_t rows;               // T
  float* y;                   // [T, D]
};

struct NormArgs {
  const float* x;         // [T, D]
  const float* residual;  // [T, D], or nullptr
  const float* weight;    // [D]
  float epsilon;
  int64_t rows;   // T
  int64_t width;  // D
  float* y;       // [T, D]: s / sqrt(mean(s * s) + epsilon) * weight, s = x + residual
  float* sum;     // [T, D]: s; with residual only
};

enum class GateKind : int32_t { kSilu, kGeluTanh };

struct GatedArgs {
  const float* gate_up;  // [T, 2F]: gate, then up
  GateKind kind;
  int64_t rows;   // T
  int64_t width;  // F
  float* y;       // [T, F]
};

struct TakeRowsArgs {
  const float* x;          // [T, D]
  const int32_t* indices;  // [N]
  int64_t rows;            // N
  int64_t width;           // D
  float* y;                // [N, D]
};

int64_t embed_tiles(const EmbedArgs& args);
int64_t norm_tiles(const NormArgs& args);
int64_t gated_tiles(const GatedArgs& args);
int64_t take_rows_tiles(const TakeRowsArgs& args);

// These only move memory and have one version.
void embed(const EmbedArgs& args, int64_t tile, int thread);
void take_rows(const TakeRowsArgs& args, int64_t tile, int thread);

namespace portable {
void norm(const NormArgs& args, int64_t tile, int thread);
void gated(const GatedArgs& args, int64_t tile, int thread);
}  // namespace portable

#if defined(__x86_64__)
namespace avx2 {
void norm(const NormArgs& args, int64_t tile, int thread);
void gated(const GatedArgs& args, int64_t tile, int thread);
}  // namespace avx2

namespace avx512 {
void norm(const NormArgs& args, int64_t tile, int thread);
void gated(const GatedArgs& args, int64_t tile, int thread);
}  // namespace avx512
#endif

}  // namespace paceline
