// Linear layers, plainly: lane loops a compiler vectorizes for whatever it has. The check of the fast
// versions, which for every kind of weight must give the same bits.
#include <algorithm>

#include "blocks.h"
#include "linear.h"

namespace paceline::portable {
namespace {

// A row of `panel` being summed, one entry an output.
struct Sums {
  float y[kPanelOutputs];
};

float coefficient(const PackedWeight& weight, const uint8_t* array, int64_t lane) {
  return weight.wide_scales ? load<float>(array + 4 * lane) : half_to_float(load<uint16_t>(array + 2 * lane));
}

// One record as floats. Sums of number times activation stay below 2^24, so float arithmetic on them is
// integer arithmetic, and is what every machine has vectors for.
struct Record {
  float numbers[kLargestGroup][kPanelOutputs];
  float scales[kPanelOutputs];
  float minimums[kPanelOutputs];
};

void unpack_quad(const uint8_t* quads, int shift, int mask, int zero, float (*numbers)[kPanelOutputs]) {
  for (int64_t k = 0; k < 4; ++k) {
    for (int64_t n = 0; n < kPanelOutputs; ++n) {
      numbers[k][n] = static_cast<float>((quads[4 * n + k] >> shift & mask) - zero);
    }
  }
}

void unpack_record(const PackedWeight& weight, const uint8_t* from, Record& record) {
  const int zero = zero_point(weight);
  for (int64_t k = 0; k < weight.group; k += 4) {
    if (weight.kind == WeightKind::INT4) {
      unpack_quad(from + k / 8 * 4 * kPanelOutputs, k & 4, 15, zero, record.numbers + k);
    } else {
      unpack_quad(from + k * kPanelOutputs, 0, 255, zero, record.numbers + k);
    }
  }
  if (weight.kind == WeightKind::CHANNEL) return;
  const uint8_t* coefficients = from + value_bytes(weight);
  for (int64_t n = 0; n < kPanelOutputs; ++n) record.scales[n] = coefficient(weight, coefficients, n);
  if (!weight.has_minimum) return;
  for (int64_t n = 0; n < kPanelOutputs; ++n) {
    record.minimums[n] = coefficient(weight, coefficients, kPanelOutputs + n);
  }
}

void add_record(const PackedWeight& weight, const QuantizedRows& q_rows, const Record& record, int64_t row,
                int64_t g, Sums& sums) {
  const int8_t* q = q_rows.values + row * weight.depth + g * weight.group;
  float integers[kPanelOutputs] = {};
  for (int64_t k = 0; k < weight.group; ++k) {
    const float activation = q[k];
    for (int64_t n = 0; n < kPanelOutputs; ++n) integers[n] += record.numbers[k][n] * activation;
  }
  const float scale = q_rows.scales[(row * weight.depth + g * weight.group) / activation_group(weight.group)];
  if (weight.kind == WeightKind::CHANNEL) {
    for (int64_t n = 0; n < kPanelOutputs; ++n) sums.y[n] += integers[n] * scale;
    return;
  }
  for (int64_t n = 0; n < kPanelOutputs; ++n) sums.y[n] += integers[n] * record.scales[n] * scale;
  if (!weight.has_minimum) return;
  const float sum = q_rows.sums[row * (weight.depth / weight.group) + g];
  for (int64_t n = 0; n < kPanelOutputs; ++n) sums.y[n] += record.minimums[n] * sum;
}

void add_position(const LinearArgs& args, const float* weights, int64_t row, int64_t k, Sums& sums) {
  const float x = args.x[row * args.weight->depth + k];
  for (int64_t n = 0; n < kPanelOutputs; ++n) sums.y[n] += weights[n] * x;
}

// Adds the whole panel to every row, so that each record is unpacked once.
void sum_quantized(const PackedWeight& weight, const QuantizedRows& q, const uint8_t* panel, Range rows,
                   Sums* sums) {
  Record record;
  const int64_t bytes = weight.kind == WeightKind::CHANNEL ? value_bytes(weight) : record_bytes(weight);
  for (int64_t g = 0; g < weight.depth / weight.group; ++g, panel += bytes) {
    unpack_record(weight, panel, record);
    for (int64_t row = rows.begin; row < rows.end; ++row)
      add_record(weight, q, record, row, g, sums[row - rows.begin]);
  }
}

void add_outputs(Range rows, const Sums* more, Sums* sums) {
  for (int64_t row = 0; row < rows.end - rows.begin; ++row)
    for (int64_t n = 0; n < kPanelOutputs; ++n) sums[row].y[n] += more[row].y[n];
}

void scale_outputs(const PackedWeight& weight, const uint8_t* panel, Range rows, Sums* sums) {
  const uint8_t* scales = panel + weight.depth * kPanelOutputs;
  for (int64_t row = rows.begin; row < rows.end; ++row)
    for (int64_t n = 0; n < kPanelOutputs; ++n) sums[row - rows.begin].y[n] *= load<float>(scales + 4 * n);
}

void sum_panel(const LinearArgs& args, const uint8_t* panel, Range rows, Sums* sums) {
  const PackedWeight& weight = *args.weight;
  if (takes_quantized(weight)) {
    sum_quantized(weight, args.q, panel, rows, sums);
    if (args.residual.values != nullptr) {
      Sums second[kTileRows] = {};
      sum_quantized(weight, args.residual, panel, rows, second);
      add_outputs(rows, second, sums);
    }
    if (weight.kind == WeightKind::CHANNEL) scale_outputs(weight, panel, rows, sums);
    return;
  }
  for (int64_t k = 0; k < weight.depth; ++k) {
    float weights[kPanelOutputs];
    for (int64_t n = 0; n < kPanelOutputs; ++n) {
      const int64_t element = k * kPanelOutputs + n;
      weights[n] = weight.kind == WeightKind::F32 ? load<float>(panel + 4 * element)
                                                  : bfloat_to_float(load<uint16_t>(panel + 2 * element));
    }
    for (int64_t row = rows.begin; row < rows.end; ++row)
      add_position(args, weights, row, k, sums[row - rows.begin]);
  }
}

}  // namespace

void linear(const LinearArgs& args, int64_t index, int /*thread*/) {
  const LinearTile tile = linear_tile(args, index);
  const PackedWeight& weight = *args.weight;
  for (int64_t panel = tile.panels.begin; panel < tile.panels.end; ++panel) {
    Sums sums[kTileRows] = {};
    sum_panel(args, weight.data + panel * panel_bytes(weight), tile.rows, sums);
    const int64_t first = panel * kPanelOutputs;
    const int64_t count = std::min(kPanelOutputs, weight.outputs - first);
    for (int64_t row = tile.rows.begin; row < tile.rows.end; ++row) {
      for (int64_t n = 0; n < count; ++n) {
        const float y = sums[row - tile.rows.begin].y[n];
        args.y[row * weight.outputs + first + n] = args.bias ? y + args.bias[first + n] : y;
      }
    }
  }
}

}  // namespace paceline::portable
