// Packed weights: the one layout every instruction set reads, and the way there from checkpoint rows.
//
// Lanes are outputs. A panel holds kPanelOutputs consecutive outputs over the whole depth, as one sequential
// stream, so that a linear reads memory forwards once. Outputs past the last are zeros.
//
//   weight  = panel 0 | panel 1 | ...                            outputs 0..31 | 32..63 | ...
//   panel   = record 0 | record 1 | ...                          one record a group of `group` depth
//   positions record  = values | scales[32] | minimums[32] (if any)        scales and minimums float16, or
//   float32 if wide values  : INT8  [group / 4][32][4] uint8                     a quad is 4 consecutive
//   depth positions of one output
//             INT4  [group / 8][32][4] uint8                     low nibbles quad 2j, high nibbles quad 2j +
//             1 F32, BF16 [depth][32]                              no records: the panel is this array
//             CHANNEL [depth / 4][32][4] uint8, then scales[32]    no records: one float32 scale an output
//
// The value of an element is scale * (u - offset) + minimum, u the stored unsigned number: exactly the file's
// value, but for CHANNEL, which rounds it to the nearest of 255 steps of its output's largest. offset: INT8
// and CHANNEL 128; INT4 8 without minimum, 0 with one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace paceline {

constexpr int64_t kPanelOutputs = 32;

// How a checkpoint stores elements; the layouts of the GGUF specification, in the order of ops/protocol.py's
// TensorKind.
enum class SourceKind : int32_t { F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K };

enum class WeightKind : int32_t { F32, BF16, INT8, INT4, CHANNEL };

struct PackedWeight {
  WeightKind kind;
  // Depth positions that share a scale: 16 or 32; 1 for F32 and BF16. CHANNEL: that share an activation
  // scale.
  int32_t group;
  bool has_minimum;
  bool wide_scales;     // float32 scales and minimums (K-quants need the bits), else float16
  int64_t outputs;      // N
  int64_t depth;        // K
  const uint8_t* data;  // packed_bytes() bytes, 64-byte aligned; the caller's
};

// Rows of one checkpoint tensor: num_rows times source_row_bytes(kind, depth) bytes.
struct WeightPart {
  SourceKind kind;
  const uint8_t* rows;
  int64_t num_rows;
};

// Bytes of one row of `depth` elements; -1 if depth is not a whole number of the kind's blocks (or not
// positive).
int64_t source_row_bytes(SourceKind kind, int64_t depth);

// Whether a weight is packed exactly, or requantized to CHANNEL.
enum class Packing : int32_t { kExact, kChannel };

// Fills all but `data`: the narrowest layout that holds every part (stacked by rows, in order) exactly, or
// CHANNEL. Returns nullptr, or why there is none (mixed float and quantized parts, a depth that is not whole
// blocks).
const char* plan_weight(const WeightPart* parts, int64_t num_parts, int64_t depth, Packing packing,
                        PackedWeight* weight);

// The stored number that means zero (`offset` above).
int zero_point(const PackedWeight& weight);
// Sizes of the layout: `data`, a panel, a record, and the values of a record (the two last for INT8 and INT4;
// of CHANNEL the values of a group).
size_t packed_bytes(const PackedWeight& weight);
int64_t num_panels(const PackedWeight& weight);
int64_t panel_bytes(const PackedWeight& weight);
int64_t record_bytes(const PackedWeight& weight);
int64_t value_bytes(const PackedWeight& weight);

// Writes `data` (which must be writable here) of a planned weight. A tile is a run of panels.
struct PackArgs {
  const WeightPart* parts;
  int64_t num_parts;
  const PackedWeight* weight;
  uint8_t* data;
};
int64_t pack_tiles(const PackArgs& args);
void pack(const PackArgs& args, int64_t tile, int thread);

// Output `row` as float32 [depth]: the values of the file. Serves the embedding lookup; about depth / 4 cache
// lines.
void unpack_row(const PackedWeight& weight, int64_t row, float* out);

}  // namespace paceline
