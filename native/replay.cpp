// The second half of Program: memory for its tensors, and its tasks.

#include <stdexcept>

#include "placement.h"
#include "program.h"

namespace paceline {
namespace {

// Writes the addresses an operation works on into its arguments; once.
struct Binder {
  const Operation& operation;
  const std::vector<std::byte*>& addresses;
  const std::vector<int>& terms;  // of each tensor
  const Surroundings& around;
  int64_t max_rows;

  float* at(TensorId id) const { return id < 0 ? nullptr : reinterpret_cast<float*>(addresses[id]); }
  float* in(int index) const { return at(operation.inputs[index]); }
  float* out(int index) const { return at(operation.outputs[index]); }

  // The second term lies behind the first.
  QuantizedRows residual(TensorId id, int64_t depth) const {
    if (terms[id] < 2) return {};
    return quantized_view(addresses[id] + quantized_bytes(max_rows, depth), max_rows, depth);
  }

  void operator()(EmbedArgs& args) const { args.y = out(0); }
  void operator()(NormArgs& args) const {
    args.x = in(0);
    args.residual = in(1);
    args.y = out(0);
    args.sum = out(1);
  }
  void operator()(QuantizeArgs& args) const {
    args.x = in(0);
    args.out = quantized_view(out(0), max_rows, args.depth);
    args.residual = residual(operation.outputs[0], args.depth);
  }
  void operator()(LinearArgs& args) const {
    if (takes_quantized(*args.weight)) {
      args.q = quantized_view(in(0), max_rows, args.weight->depth);
      args.residual = residual(operation.inputs[0], args.weight->depth);
    } else {
      args.x = in(0);
    }
    args.y = out(0);
  }
  void operator()(RotaryStoreArgs& args) const {
    args.rows = around.rows;
    args.pool = around.pool;
    args.cos = around.cos;
    args.sin = around.sin;
    args.table_width = around.table_width;
    args.qkv = in(0);
    args.q = out(0);
  }
  void operator()(AttendArgs& args) const {
    args.rows = around.rows;
    args.pool = around.pool;
    args.plan = around.plan;
    args.scratch = around.scratch;
    args.scratch_stride = around.scratch_stride;
    args.q = in(0);
    args.output = out(0);
  }
  void operator()(GatedArgs& args) const {
    args.gate_up = in(0);
    args.y = out(0);
  }
  void operator()(TakeRowsArgs& args) const {
    args.x = in(0);
    args.y = out(0);
  }
};

// Writes what changes with every replay; returns the number of tiles.
struct Sizer {
  const Replay& replay;

  int64_t operator()(EmbedArgs& args) const {
    args.rows = replay.rows;
    args.tokens = replay.tokens;
    return embed_tiles(args);
  }
  int64_t operator()(NormArgs& args) const {
    args.rows = replay.rows;
    return norm_tiles(args);
  }
  int64_t operator()(QuantizeArgs& args) const {
    args.rows = replay.rows;
    return quantize_tiles(args);
  }
  int64_t operator()(LinearArgs& args) const {
    args.rows = replay.rows;
    return linear_tiles(args);
  }
  int64_t operator()(RotaryStoreArgs& args) const { return rotary_store_tiles(args); }
  int64_t operator()(AttendArgs& args) const { return attend_tiles(args); }
  int64_t operator()(GatedArgs& args) const {
    args.rows = replay.rows;
    return gated_tiles(args);
  }
  int64_t operator()(TakeRowsArgs& args) const {
    args.rows = replay.rows;
    args.indices = replay.indices;
    return take_rows_tiles(args);
  }
};

}  // namespace

void Program::place(const Surroundings& surroundings, int64_t max_rows, const float* input) {
  std::vector<Lifetime> lifetimes;
  for (const Tensor& tensor : tensors_) {
    const size_t bytes = tensor.first < 0   ? 0
                         : tensor.terms > 0 ? tensor.terms * quantized_bytes(max_rows, tensor.width)
                                            : static_cast<size_t>(max_rows * tensor.width) * sizeof(float);
    lifetimes.push_back({bytes, tensor.first, tensor.last});
  }
  lifetimes[check(output_)].last = static_cast<int64_t>(operations_.size());
  const Placement placement = paceline::place(lifetimes);
  memory_ = Memory(placement.bytes);
  for (size_t id = 0; id < tensors_.size(); ++id)
    addresses_.push_back(tensors_[id].first < 0 ? reinterpret_cast<std::byte*>(const_cast<float*>(input))
                                                : memory_.as<std::byte>() + placement.offsets[id]);
  std::vector<int> terms;
  for (const Tensor& tensor : tensors_) terms.push_back(tensor.terms);
  for (Operation& operation : operations_) {
    std::visit(Binder{operation, addresses_, terms, surroundings, max_rows}, operation.args);
    const void* args = std::visit([](const auto& a) -> const void* { return &a; }, operation.args);
    tasks_.push_back({0, operation.run, args});
  }
}

const float* Program::output() const { return reinterpret_cast<const float*>(addresses_[output_]); }

std::span<const Task> Program::tasks(const Replay& replay) {
  for (size_t i = 0; i < operations_.size(); ++i)
    tasks_[i].num_tiles = std::visit(Sizer{replay}, operations_[i].args);
  return tasks_;
}

}  // namespace paceline
