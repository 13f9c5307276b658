#include "pack.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "blocks.h"

namespace paceline {
namespace {

constexpr int64_t kTilePanels = 8;

bool is_float(WeightKind kind) { return kind == WeightKind::F32 || kind == WeightKind::BF16; }

int64_t coefficient_bytes(const PackedWeight& weight) { return weight.wide_scales ? 4 : 2; }

void store_coefficient(const PackedWeight& weight, uint8_t* array, int64_t lane, float value) {
  if (weight.wide_scales) {
    store(array + 4 * lane, value);
  } else {
    store(array + 2 * lane, exact_half(value));
  }
}

float load_coefficient(const PackedWeight& weight, const uint8_t* array, int64_t lane) {
  return weight.wide_scales ? load<float>(array + 4 * lane) : half_to_float(load<uint16_t>(array + 2 * lane));
}

void store_numbers(const PackedWeight& weight, uint8_t* record, int64_t lane, const uint8_t* numbers) {
  if (weight.kind == WeightKind::INT8) {
    for (int k = 0; k < weight.group; k += 4) {
      store(record + (k / 4 * kPanelOutputs + lane) * 4, load<uint32_t>(numbers + k));
    }
    return;
  }
  for (int k = 0; k < weight.group; k += 8) {
    const uint32_t both = load<uint32_t>(numbers + k) | load<uint32_t>(numbers + k + 4) << 4;
    store(record + (k / 8 * kPanelOutputs + lane) * 4, both);
  }
}

void pack_quantized_row(const PackedWeight& weight, SourceKind kind, const uint8_t* row, uint8_t* panel,
                        int64_t lane) {
  const SourceTraits& source = traits(kind);
  const auto shift = static_cast<uint8_t>(zero_point(weight) - source.center);
  const int64_t scales_at = value_bytes(weight);
  const int64_t minimums_at = scales_at + kPanelOutputs * coefficient_bytes(weight);
  const int64_t bytes = record_bytes(weight);
  Block block;
  uint8_t* record = panel;
  for (int64_t start = 0; start < weight.depth; start += source.block, row += source.bytes) {
    decode(kind, row, block);
    if (shift != 0) {
      for (int i = 0; i < source.block; ++i) block.numbers[i] += shift;
    }
    for (int k = 0; k < source.block; k += weight.group, record += bytes) {
      const int group = k / source.group;
      store_numbers(weight, record, lane, block.numbers + k);
      store_coefficient(weight, record + scales_at, lane, block.scales[group]);
      if (weight.has_minimum) store_coefficient(weight, record + minimums_at, lane, block.minimums[group]);
    }
  }
}

float load_float(SourceKind kind, const uint8_t* row, int64_t k) {
  if (kind == SourceKind::F32) return load<float>(row + 4 * k);
  const auto bits = load<uint16_t>(row + 2 * k);
  return kind == SourceKind::F16 ? half_to_float(bits) : bfloat_to_float(bits);
}

void pack_float_row(const PackedWeight& weight, SourceKind kind, const uint8_t* row, uint8_t* panel,
                    int64_t lane) {
  for (int64_t k = 0; k < weight.depth; ++k) {
    const int64_t element = k * kPanelOutputs + lane;
    if (weight.kind == WeightKind::BF16) {
      store(panel + 2 * element, load<uint16_t>(row + 2 * k));
    } else {
      store(panel + 4 * element, load_float(kind, row, k));
    }
  }
}

// The elements of a row, as the file means them.
void read_row(SourceKind kind, const uint8_t* row, std::vector<float>& out) {
  const SourceTraits& source = traits(kind);
  if (source.bits == 0) {
    for (size_t k = 0; k < out.size(); ++k) out[k] = load_float(kind, row, static_cast<int64_t>(k));
    return;
  }
  Block block;
  for (size_t start = 0; start < out.size(); start += source.block, row += source.bytes) {
    decode(kind, row, block);
    for (int k = 0; k < source.block; ++k) {
      const int group = k / source.group;
      const float minimum = source.has_minimum ? block.minimums[group] : 0.0f;
      out[start + k] = block.scales[group] * float(block.numbers[k] - source.center) + minimum;
    }
  }
}

// Round to nearest: symmetric, one scale for the output.
void pack_channel_row(const PackedWeight& weight, SourceKind kind, const uint8_t* row, uint8_t* panel,
                      int64_t lane) {
  std::vector<float> values(weight.depth);
  read_row(kind, row, values);
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
  for (int64_t k = 0; k < weight.depth; ++k) {
    const auto number = static_cast<int32_t>(std::lrint(values[k] * inverse));
    panel[(k / 4 * kPanelOutputs + lane) * 4 + k % 4] = static_cast<uint8_t>(number + 128);
  }
  store(panel + weight.depth * kPanelOutputs + 4 * lane, largest / 127.0f);
}

void pack_row(const PackArgs& args, int64_t output, uint8_t* panel) {
  const PackedWeight& weight = *args.weight;
  const WeightPart* part = args.parts;
  int64_t index = output;
  for (; index >= part->num_rows; ++part) index -= part->num_rows;
  const uint8_t* row = part->rows + index * source_row_bytes(part->kind, weight.depth);
  auto* const pack_one = weight.kind == WeightKind::CHANNEL ? pack_channel_row
                         : is_float(weight.kind)            ? pack_float_row
                                                            : pack_quantized_row;
  pack_one(weight, part->kind, row, panel, output % kPanelOutputs);
}

void unpack_quantized(const PackedWeight& weight, const uint8_t* record, int64_t lane, float* out) {
  const uint8_t* coefficients = record + value_bytes(weight);
  const float scale = load_coefficient(weight, coefficients, lane);
  const float minimum =
      weight.has_minimum ? load_coefficient(weight, coefficients, kPanelOutputs + lane) : 0.0f;
  const bool nibbles = weight.kind == WeightKind::INT4;
  const int zero = zero_point(weight);
  for (int k = 0; k < weight.group; ++k) {
    const int quad = nibbles ? k / 8 : k / 4;
    const uint8_t stored = record[(quad * kPanelOutputs + lane) * 4 + k % 4];
    const int number = nibbles ? (k & 4 ? stored >> 4 : stored & 15) : stored;
    const float product = scale * float(number - zero);
    out[k] = weight.has_minimum ? product + minimum : product;
  }
}

void unpack_channel(const PackedWeight& weight, const uint8_t* panel, int64_t lane, float* out) {
  const auto scale = load<float>(panel + weight.depth * kPanelOutputs + 4 * lane);
  for (int64_t k = 0; k < weight.depth; ++k)
    out[k] = scale * float(panel[(k / 4 * kPanelOutputs + lane) * 4 + k % 4] - 128);
}

}  // namespace

int zero_point(const PackedWeight& weight) {
  if (weight.kind == WeightKind::INT8 || weight.kind == WeightKind::CHANNEL) return 128;
  return weight.has_minimum ? 0 : 8;
}

int64_t value_bytes(const PackedWeight& weight) {
  return weight.group * kPanelOutputs / (weight.kind == WeightKind::INT4 ? 2 : 1);
}

int64_t record_bytes(const PackedWeight& weight) {
  return value_bytes(weight) + kPanelOutputs * coefficient_bytes(weight) * (weight.has_minimum ? 2 : 1);
}

int64_t panel_bytes(const PackedWeight& weight) {
  if (weight.kind == WeightKind::F32) return weight.depth * kPanelOutputs * 4;
  if (weight.kind == WeightKind::BF16) return weight.depth * kPanelOutputs * 2;
  if (weight.kind == WeightKind::CHANNEL) return weight.depth * kPanelOutputs + 4 * kPanelOutputs;
  return weight.depth / weight.group * record_bytes(weight);
}

int64_t num_panels(const PackedWeight& weight) {
  return (weight.outputs + kPanelOutputs - 1) / kPanelOutputs;
}

int64_t source_row_bytes(SourceKind kind, int64_t depth) {
  const SourceTraits& source = traits(kind);
  return depth <= 0 || depth % source.block != 0 ? -1 : depth / source.block * source.bytes;
}

namespace {

const char* plan_channel(const WeightPart* parts, int64_t num_parts, int64_t depth, PackedWeight* weight) {
  *weight = PackedWeight{WeightKind::CHANNEL, depth % 64 == 0 ? 64 : 32, false, true, 0, depth, nullptr};
  if (depth % 32 != 0) return "int8 needs a depth that is a multiple of 32";
  for (int64_t i = 0; i < num_parts; ++i) {
    if (source_row_bytes(parts[i].kind, depth) < 0) return "depth is not a whole number of the kind's blocks";
    weight->outputs += parts[i].num_rows;
  }
  return nullptr;
}

}  // namespace

const char* plan_weight(const WeightPart* parts, int64_t num_parts, int64_t depth, Packing packing,
                        PackedWeight* weight) {
  if (num_parts < 1) return "a weight needs at least one part";
  if (packing == Packing::kChannel) return plan_channel(parts, num_parts, depth, weight);
  const bool float_parts = traits(parts[0].kind).bits == 0;
  bool all_bfloat = true, same_minimum = true;
  int32_t bits = 0;
  *weight = PackedWeight{WeightKind::F32, 32, false, false, 0, depth, nullptr};
  for (int64_t i = 0; i < num_parts; ++i) {
    const SourceTraits& source = traits(parts[i].kind);
    if (source_row_bytes(parts[i].kind, depth) < 0) return "depth is not a whole number of the kind's blocks";
    if ((source.bits == 0) != float_parts) return "float and quantized parts can't share one weight";
    all_bfloat &= parts[i].kind == SourceKind::BF16;
    same_minimum &= source.has_minimum == traits(parts[0].kind).has_minimum;
    bits = std::max(bits, source.bits);
    weight->group = std::min(weight->group, source.group);
    weight->has_minimum |= source.has_minimum;
    weight->wide_scales |= source.wide_scales;
    weight->outputs += parts[i].num_rows;
  }
  if (float_parts) {
    weight->kind = all_bfloat ? WeightKind::BF16 : WeightKind::F32;
  } else {
    // Without a minimum 4-bit numbers are centred on 8, with one on 0: a mix needs the wider numbers.
    weight->kind = bits == 4 && same_minimum ? WeightKind::INT4 : WeightKind::INT8;
  }
  return nullptr;
}

size_t packed_bytes(const PackedWeight& weight) {
  return static_cast<size_t>(num_panels(weight) * panel_bytes(weight));
}

int64_t pack_tiles(const PackArgs& args) {
  return (num_panels(*args.weight) + kTilePanels - 1) / kTilePanels;
}

void pack(const PackArgs& args, int64_t tile, int /*thread*/) {
  const PackedWeight& weight = *args.weight;
  const int64_t last = std::min((tile + 1) * kTilePanels, num_panels(weight));
  for (int64_t panel = tile * kTilePanels; panel < last; ++panel) {
    uint8_t* to = args.data + panel * panel_bytes(weight);
    const int64_t first = panel * kPanelOutputs;
    const int64_t end = std::min(first + kPanelOutputs, weight.outputs);
    if (end - first < kPanelOutputs) std::memset(to, 0, static_cast<size_t>(panel_bytes(weight)));
    for (int64_t output = first; output < end; ++output) pack_row(args, output, to);
  }
}

void unpack_row(const PackedWeight& weight, int64_t row, float* out) {
  const int64_t lane = row % kPanelOutputs;
  const uint8_t* panel = weight.data + row / kPanelOutputs * panel_bytes(weight);
  if (is_float(weight.kind)) {
    const bool wide = weight.kind == WeightKind::F32;
    for (int64_t k = 0; k < weight.depth; ++k) {
      const int64_t element = k * kPanelOutputs + lane;
      out[k] = wide ? load<float>(panel + 4 * element) : bfloat_to_float(load<uint16_t>(panel + 2 * element));
    }
    return;
  }
  if (weight.kind == WeightKind::CHANNEL) return unpack_channel(weight, panel, lane, out);
  for (int64_t k = 0; k < weight.depth; k += weight.group, panel += record_bytes(weight)) {
    unpack_quantized(weight, panel, lane, out + k);
  }
}

}  // namespace paceline
