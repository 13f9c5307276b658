#include "program.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace paceline {
namespace {

void require(bool holds, const std::string& message) {
  if (!holds) throw std::invalid_argument(message);
}

void require_width(const char* operation, int64_t width, int64_t expected) {
  require(width == expected, std::string(operation) + ": the input is " + std::to_string(width) +
                                 " wide, the operands are made for " + std::to_string(expected));
}

int64_t size(const VectorPtr& vector) { return static_cast<int64_t>(vector->values.size()); }

}  // namespace

TensorId Program::check(TensorId id) const {
  require(id >= 0 && id < static_cast<TensorId>(tensors_.size()),
          "tensor " + std::to_string(id) + " is not of this program");
  return id;
}

TensorId Program::new_tensor(int64_t width, int terms) {
  const int64_t first = static_cast<int64_t>(operations_.size());
  tensors_.push_back({width, terms, first, first});
  return static_cast<TensorId>(tensors_.size()) - 1;
}

void Program::add(OperationArgs args, TileFunction run, std::initializer_list<TensorId> inputs,
                  std::initializer_list<TensorId> outputs) {
  Operation operation{std::move(args), run};
  std::copy(inputs.begin(), inputs.end(), operation.inputs);
  std::copy(outputs.begin(), outputs.end(), operation.outputs);
  for (TensorId input : inputs) tensors_[input].last = static_cast<int64_t>(operations_.size());
  operations_.push_back(operation);
}

TensorId Program::input(int64_t width) {
  require(tensors_.empty(), "the input comes before all operations, and once");
  const TensorId id = new_tensor(width);
  tensors_[id].first = -1;
  return id;
}

TensorId Program::embed(WeightPtr table) {
  const TensorId y = new_tensor(table->packed.depth);
  add(EmbedArgs{&table->packed, nullptr, 0, nullptr}, run_tile<EmbedArgs, paceline::embed>, {}, {y});
  num_ids_ = std::min(num_ids_, table->packed.outputs);
  weights_.push_back(std::move(table));
  return y;
}

TensorId Program::norm(TensorId x, VectorPtr weight, float epsilon) {
  require_width("norm", width(x), size(weight));
  const TensorId y = new_tensor(width(x));
  add(NormArgs{nullptr, nullptr, weight->values.data(), epsilon, 0, width(x), nullptr, nullptr},
      instruction_set_.norm, {x}, {y});
  vectors_.push_back(std::move(weight));
  return y;
}

std::pair<TensorId, TensorId> Program::add_norm(TensorId x, TensorId residual, VectorPtr weight,
                                                float epsilon) {
  require_width("add_norm", width(x), size(weight));
  require_width("add_norm", width(residual), size(weight));
  const TensorId y = new_tensor(width(x)), sum = new_tensor(width(x));
  add(NormArgs{nullptr, nullptr, weight->values.data(), epsilon, 0, width(x), nullptr, nullptr},
      instruction_set_.norm, {x, residual}, {y, sum});
  vectors_.push_back(std::move(weight));
  return {y, sum};
}

TensorId Program::quantized(TensorId x, int32_t group, int terms) {
  for (const auto& [key, id] : quantized_)
    if (key == std::tuple(x, group, terms)) return id;
  const TensorId id = new_tensor(width(x), terms);
  add(QuantizeArgs{nullptr, 0, width(x), group, {}, {}}, instruction_set_.quantize, {x}, {id});
  quantized_.push_back({{x, group, terms}, id});
  return id;
}

TensorId Program::linear(TensorId x, WeightPtr weight, VectorPtr bias, bool precise) {
  const PackedWeight& packed = weight->packed;
  require_width("linear", width(x), packed.depth);
  require(bias == nullptr || size(bias) == packed.outputs,
          "linear: the bias does not have " + std::to_string(packed.outputs) + " elements");
  const bool exact = packed.kind != WeightKind::CHANNEL;
  if (takes_quantized(packed)) x = quantized(x, packed.group, precise && exact ? 2 : 1);
  const TensorId y = new_tensor(packed.outputs);
  const float* bias_values = bias == nullptr ? nullptr : bias->values.data();
  add(LinearArgs{&packed, nullptr, {}, {}, bias_values, 0, nullptr}, instruction_set_.linear, {x}, {y});
  weights_.push_back(std::move(weight));
  if (bias != nullptr) vectors_.push_back(std::move(bias));
  return y;
}

void Program::see_attention(int64_t layer_index, const AttentionSpec& spec) {
  require(layer_index >= 0, "attention: layer " + std::to_string(layer_index) + " is negative");
  num_layers_ = std::max(num_layers_, layer_index + 1);
  attention_.push_back(spec);
}

TensorId Program::rotary_store(TensorId qkv, int64_t layer_index, const AttentionSpec& spec) {
  require_width("rotary_store", width(qkv), (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_width);
  see_attention(layer_index, spec);
  const TensorId q = new_tensor(spec.num_heads * spec.head_width);
  RotaryStoreArgs args{};
  args.layer_index = layer_index;
  args.num_heads = spec.num_heads;
  add(args, instruction_set_.rotary_store, {qkv}, {q});
  return q;
}

TensorId Program::attend(TensorId q, int64_t layer_index, const AttentionSpec& spec) {
  require_width("attend", width(q), spec.num_heads * spec.head_width);
  see_attention(layer_index, spec);
  const TensorId output = new_tensor(width(q));
  AttendArgs args{};
  args.layer_index = layer_index;
  args.num_heads = spec.num_heads;
  args.scale = spec.scale;
  args.window = spec.window;
  args.soft_cap = spec.soft_cap;
  add(args, instruction_set_.attend, {q}, {output});
  return output;
}

TensorId Program::gated(TensorId gate_up, GateKind kind) {
  require(width(gate_up) % 2 == 0,
          "gated: the input is " + std::to_string(width(gate_up)) + " wide, an odd number");
  const TensorId y = new_tensor(width(gate_up) / 2);
  add(GatedArgs{nullptr, kind, 0, width(gate_up) / 2, nullptr}, instruction_set_.gated, {gate_up}, {y});
  return y;
}

TensorId Program::take_rows(TensorId x) {
  const TensorId y = new_tensor(width(x));
  add(TakeRowsArgs{nullptr, nullptr, 0, width(x), nullptr}, run_tile<TakeRowsArgs, paceline::take_rows>, {x},
      {y});
  return y;
}

}  // namespace paceline
