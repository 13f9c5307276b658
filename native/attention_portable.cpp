// Attention in plain C++: loops over 16 lanes that compilers vectorize, and the check of the fast one.

#include <cstring>

#include "attention_tile.h"

namespace paceline {
namespace {

constexpr int64_t kLanes = 16;

inline float as_float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

inline uint32_t as_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

// 2^x = whole * (1 + fraction): whole = 2^n for the nearest n, fraction = 2^f - 1 for the rest f.
struct PowerParts {
  float whole;
  float fraction;
};

inline PowerParts power_parts(float x) {
  constexpr float kRound = 12582912.0f;  // adding 1.5 * 2^23 rounds to a whole number
  x = x > -126.0f ? x : -126.0f;
  const float n = (x + kRound) - kRound;
  const float f = x - n;
  float p = kPower6;
  p = p * f + kPower5;
  p = p * f + kPower4;
  p = p * f + kPower3;
  p = p * f + kPower2;
  p = p * f + kPower1;
  return {as_float(static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23), p * f};
}

// 2^x for x <= 0; below 2^-126 zero.
inline float power(float x) {
  const PowerParts parts = power_parts(x);
  const float y = parts.whole * parts.fraction + parts.whole;
  return x < -126.0f ? 0.0f : y;
}

// tanh(x) with y = 2 x / ln 2; exact to the last bits near zero too.
inline float tanh_of(float y) {
  y = y < 40.0f ? y : 40.0f;
  y = y > -40.0f ? y : -40.0f;
  const PowerParts parts = power_parts(y);
  const float minus_one = parts.whole * parts.fraction + (parts.whole - 1.0f);
  return minus_one / (minus_one + 2.0f);
}

// sum[lane] += unit * units[lane].
template <KvFormat format>
inline void multiply_add(float* sum, uint32_t unit, const uint32_t* units) {
  if constexpr (format == KvFormat::kBfloat16) {
    const float even = as_float(unit << 16), odd = as_float(unit & 0xffff0000u);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      sum[lane] += even * as_float(units[lane] << 16);
      sum[lane] += odd * as_float(units[lane] & 0xffff0000u);
    }
  } else {
    const float x = as_float(unit);
    for (int64_t lane = 0; lane < kLanes; ++lane) sum[lane] += x * as_float(units[lane]);
  }
}

// sum[lane] = the product of a query and the keys of a group.
template <KvFormat format>
void key_products(const PieceTask& task, const uint32_t* query, const uint32_t* keys, float* sum) {
  for (int64_t lane = 0; lane < kLanes; ++lane) sum[lane] = 0;
  for (int64_t u = 0; u < task.key_units; ++u) multiply_add<format>(sum, query[u], keys + u * kLanes);
}

template <>
void key_products<KvFormat::kInt8>(const PieceTask& task, const uint32_t* units, const uint32_t* keys,
                                   float* sum) {
  const Int8Query query = int8_query(units, task.key_units);
  const auto* q = reinterpret_cast<const int8_t*>(units);
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    int32_t product = 0;
    for (int64_t e = 0; e < 4 * task.key_units; ++e) {
      const auto key = static_cast<int32_t>(keys[e / 4 * kLanes + lane] >> (e % 4 * 8) & 0xffu);
      product += (key - kKeyOffset) * q[e];
    }
    const float scaled = static_cast<float>(product) * as_float(keys[task.key_units * kLanes + lane]);
    sum[lane] = scaled * query.scale;
  }
}

// Scores of one query, in units of log 2; returns the largest. Keys it does not see get -inf.
template <KvFormat format>
float score_keys(const PieceTask& task, int64_t query) {
  const KeyRange seen = task.visible[query];
  float largest = -__builtin_inff();
  for (int64_t g = task.first_group; g < task.end_group; ++g) {
    float sum[kLanes];
    key_products<format>(task, task.queries + query * task.query_units, task.groups[g], sum);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      float score = sum[lane] * task.scale.scale;
      if (task.scale.capped) score = task.scale.tanh_scale * tanh_of(score);
      const int64_t key = g * kGroupKeys + lane;
      score = key >= seen.low && key < seen.high ? score : -__builtin_inff();
      largest = score > largest ? score : largest;
      task.scores[key] = score;
    }
  }
  return largest;
}

// Weights 2^(score - largest), rounded as they multiply V, into task.weights and summed into `sums`.
template <KvFormat format>
void weigh_keys(const PieceTask& task, float largest, float* sums) {
  for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] = 0;
  for (int64_t g = task.first_group; g < task.end_group; ++g) {
    uint32_t bits[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      bits[lane] = as_bits(power(task.scores[g * kGroupKeys + lane] - largest));
      if (format == KvFormat::kBfloat16)
        bits[lane] = (bits[lane] + 0x7fffu + ((bits[lane] >> 16) & 1u)) & 0xffff0000u;
      sums[lane] += as_float(bits[lane]);
    }
    if constexpr (format == KvFormat::kBfloat16) {
      uint32_t* weights = task.weights + g * kGroupKeys / 2;
      for (int64_t i = 0; i < kGroupKeys / 2; ++i) weights[i] = bits[2 * i] >> 16 | bits[2 * i + 1];
    } else {
      std::memcpy(task.weights + g * kGroupKeys, bits, sizeof bits);
    }
  }
}

template <KvFormat format>
void weigh_values(const PieceTask& task, float* record) {
  constexpr int64_t kUnitsPerGroup = kGroupKeys / (format == KvFormat::kBfloat16 ? 2 : 1);
  for (int64_t e = 0; e < task.width; e += kLanes) {
    float sum[kLanes] = {};
    for (int64_t g = task.first_group; g < task.end_group; ++g)
      for (int64_t u = 0; u < kUnitsPerGroup; ++u)
        multiply_add<format>(sum, task.weights[g * kUnitsPerGroup + u],
                             task.groups[g] + task.value_offset + u * task.width + e);
    std::memcpy(record + e, sum, sizeof sum);
  }
}

// The scales of the values of a group.
const uint32_t* value_scales(const PieceTask& task, int64_t g) {
  return task.groups[g] + task.value_offset + kGroupKeys / 4 * task.width;
}

// Weights times the scales of V in steps of a `kLargestWeight`-th of the largest, into task.weights, a number
// each; returns the step.
float weigh_int8_keys(const PieceTask& task, float most, float* sums) {
  float largest = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] = 0;
  for (int64_t g = task.first_group; g < task.end_group; ++g)
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      float& score = task.scores[g * kGroupKeys + lane];
      const float weight = power(score - most);
      sums[lane] += weight;
      score = weight * as_float(value_scales(task, g)[lane]);
      largest = score > largest ? score : largest;
    }
  const Int8Scale scale = scale_of(largest, kLargestWeight);
  for (int64_t key = task.first_group * kGroupKeys; key < task.end_group * kGroupKeys; ++key)
    task.weights[key] = static_cast<uint32_t>(round_to_even(task.scores[key] * scale.inverse));
  return scale.scale;
}

// The record of a query whose scores are there.
template <KvFormat format>
void weigh(const PieceTask& task, float* record) {
  weigh_keys<format>(task, record[task.width + 16], record + task.width);
  weigh_values<format>(task, record);
}

template <>
void weigh<KvFormat::kInt8>(const PieceTask& task, float* record) {
  const float scale = weigh_int8_keys(task, record[task.width + 16], record + task.width);
  for (int64_t e = 0; e < task.width; ++e) {
    int32_t product = 0;
    for (int64_t key = task.first_group * kGroupKeys; key < task.end_group * kGroupKeys; ++key) {
      const uint32_t* values = task.groups[key / kGroupKeys] + task.value_offset;
      const uint32_t unit = values[key % kGroupKeys / 4 * task.width + e];
      product += static_cast<int32_t>(task.weights[key]) * static_cast<int8_t>(unit >> (key % 4 * 8));
    }
    record[e] = static_cast<float>(product) * scale;
  }
}

struct Kernel {
  template <KvFormat format>
  static void piece(const PieceTask& task) {
    for (int64_t query = 0; query < task.num_queries; ++query) {
      if (task.visible[query].low >= task.visible[query].high) continue;
      float* record = task.results + query * (task.width + 32);
      record[task.width + 16] = score_keys<format>(task, query);
      weigh<format>(task, record);
    }
  }

  static void merge(float* state, const float* piece, int64_t width) {
    const float before = state[width + 16], now = piece[width + 16];
    const float largest = before > now ? before : now;
    const float keep = power(before - largest), add = power(now - largest);
    for (int64_t i = 0; i < width + kLanes; ++i) state[i] = state[i] * keep + piece[i] * add;
    state[width + 16] = largest;
  }

  static void finish(const float* state, int64_t head_width, float* output) {
    const float* sums = state + padded_width(head_width);
    float total = 0;
    for (int64_t lane = 0; lane < kLanes; ++lane) total += sums[lane];
    for (int64_t e = 0; e < head_width; ++e) output[e] = state[e] / total;
  }
};

}  // namespace

void portable::attend(const AttendArgs& args, int64_t tile, int thread) {
  attend_tile<Kernel>(args, tile, thread);
}

}  // namespace paceline
