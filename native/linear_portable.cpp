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

// One record's numbers as the unsigned operand: centred on 128, or 4-bit ones with a minimum as they are.
struct Record {
  uint8_t numbers[kActivationGroup / 4][kPanelOutputs][4];
  float scales[kPanelOutputs];
  float minimums[kPanelOutputs];
};

void unpack_record(const PackedWeight& weight, const uint8_t* from, Record& record) {
  const int64_t bytes = value_bytes(weight);
  if (weight.kind == WeightKind::INT8) {
    std::memcpy(record.numbers, from, static_cast<size_t>(bytes));
  } else {
    const int centre = weight.has_minimum ? 0 : 120;
    for (int64_t quad = 0; quad < weight.group / 4; quad += 2) {
      const uint8_t* both = from + quad / 2 * kPanelOutputs * 4;
      uint8_t* low = &record.numbers[quad][0][0];
      uint8_t* high = &record.numbers[quad + 1][0][0];
      for (int64_t i = 0; i < kPanelOutputs * 4; ++i) {
        low[i] = static_cast<uint8_t>((both[i] & 15) + centre);
        high[i] = static_cast<uint8_t>((both[i] >> 4) + centre);
      }
    }
  }
  const uint8_t* coefficients = from + bytes;
  for (int64_t n = 0; n < kPanelOutputs; ++n) record.scales[n] = coefficient(weight, coefficients, n);
  if (!weight.has_minimum) return;
  for (int64_t n = 0; n < kPanelOutputs; ++n) {
    record.minimums[n] = coefficient(weight, coefficients, kPanelOutputs + n);
  }
}

void add_record(const LinearArgs& args, const Record& record, int64_t row, int64_t g, Sums& sums) {
  const PackedWeight& weight = *args.weight;
  const int64_t groups = weight.depth / weight.group;
  const bool centred = weight.kind == WeightKind::INT8 || !weight.has_minimum;
  const int8_t* q = args.q.values + row * weight.depth + g * weight.group;
  int32_t integers[kPanelOutputs];
  std::fill_n(integers, kPanelOutputs, centred ? args.q.offsets[row * groups + g] : 0);
  for (int64_t k = 0; k < weight.group; ++k) {
    for (int64_t n = 0; n < kPanelOutputs; ++n) integers[n] += record.numbers[k / 4][n][k % 4] * q[k];
  }
  const float scale = args.q.scales[(row * weight.depth + g * weight.group) / kActivationGroup];
  for (int64_t n = 0; n < kPanelOutputs; ++n) {
    sums.y[n] += static_cast<float>(integers[n]) * record.scales[n] * scale;
  }
  if (!weight.has_minimum) return;
  const float sum = args.q.sums[row * groups + g];
  for (int64_t n = 0; n < kPanelOutputs; ++n) sums.y[n] += record.minimums[n] * sum;
}

void add_position(const LinearArgs& args, const float* weights, int64_t row, int64_t k, Sums& sums) {
  const float x = args.x[row * args.weight->depth + k];
  for (int64_t n = 0; n < kPanelOutputs; ++n) sums.y[n] += weights[n] * x;
}

// Adds the whole panel to every row, so that each record is unpacked once.
void sum_panel(const LinearArgs& args, const uint8_t* panel, Range rows, Sums* sums) {
  const PackedWeight& weight = *args.weight;
  if (takes_quantized(weight)) {
    Record record;
    for (int64_t g = 0; g < weight.depth / weight.group; ++g, panel += record_bytes(weight)) {
      unpack_record(weight, panel, record);
      for (int64_t row = rows.begin; row < rows.end; ++row)
        add_record(args, record, row, g, sums[row - rows.begin]);
    }
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
