// A model's function, recorded once as a list of operations over numbered tensors and replayed for every
// step.
//
// Life: record the operations and the output; `place` gives tensors their memory and kernels their arguments;
// then `tasks` once a step only writes the number of rows into the arguments and the number of tiles into the
// tasks. A linear over integer weights is preceded by the quantization of its input, once per input and group
// size.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "attention.h"
#include "isa.h"
#include "linear.h"
#include "memory.h"
#include "rows.h"
#include "weight.h"

namespace paceline {

using TensorId = int32_t;
using WeightPtr = std::shared_ptr<const Weight>;
using VectorPtr = std::shared_ptr<const Vector>;

// As AttentionShape of ops/protocol.py; window and soft_cap 0 where None.
struct AttentionSpec {
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_width;
  float scale;
  int64_t window;
  float soft_cap;
};

// What operations read besides tensors and weights. The session owns it all; addresses stay for its life.
struct Surroundings {
  const StepRows* rows;
  const KvPool* pool;
  const AttendPlan* plan;
  const float* cos;
  const float* sin;
  int64_t table_width;
  std::byte* scratch;
  size_t scratch_stride;
};

// One replay: `rows` of every tensor are computed, of `tokens` (embed) or `indices` (take_rows), as many.
struct Replay {
  int64_t rows;
  const int32_t* tokens;
  const int32_t* indices;
};

using OperationArgs = std::variant<EmbedArgs, NormArgs, QuantizeArgs, LinearArgs, RotaryStoreArgs, AttendArgs,
                                   GatedArgs, TakeRowsArgs>;

struct Operation {
  OperationArgs args;
  TileFunction run;
  TensorId inputs[2] = {-1, -1};
  TensorId outputs[2] = {-1, -1};
};

class Program {
 public:
  explicit Program(const InstructionSet& instruction_set) : instruction_set_(instruction_set) {}

  // Recording. Widths are elements a row. Throws std::invalid_argument where shapes don't fit.
  TensorId input(int64_t width);
  TensorId embed(WeightPtr table);
  TensorId norm(TensorId x, VectorPtr weight, float epsilon);
  std::pair<TensorId, TensorId> add_norm(TensorId x, TensorId residual, VectorPtr weight, float epsilon);
  // `precise`: activations of integer weights keep 15 bits instead of 8; CHANNEL weights are not worth it.
  TensorId linear(TensorId x, WeightPtr weight, VectorPtr bias, bool precise);
  TensorId rotary_store(TensorId qkv, int64_t layer_index, const AttentionSpec& spec);
  TensorId attend(TensorId q, int64_t layer_index, const AttentionSpec& spec);
  TensorId gated(TensorId gate_up, GateKind kind);
  TensorId take_rows(TensorId x);
  void set_output(TensorId output) { output_ = check(output); }

  int64_t output_width() const { return width(output_); }
  const std::vector<AttentionSpec>& attention() const { return attention_; }
  int64_t num_layers() const { return num_layers_; }     // 1 + the largest layer index
  int64_t num_tokens_known() const { return num_ids_; }  // token ids embed may look up

  // Gives tensors memory for `max_rows` rows; `input` is where input(...) lies.
  void place(const Surroundings& surroundings, int64_t max_rows, const float* input);
  const float* output() const;

  // The tasks of a replay, valid until the next call.
  std::span<const Task> tasks(const Replay& replay);

 private:
  struct Tensor {
    int64_t width;
    int terms;      // 0: float32; 1: quantized; 2: and what that left, quantized
    int64_t first;  // operation that writes it, -1: the input
    int64_t last;   // operation that reads it last
  };

  TensorId check(TensorId id) const;
  int64_t width(TensorId id) const { return tensors_[check(id)].width; }
  TensorId new_tensor(int64_t width, int terms = 0);
  void add(OperationArgs args, TileFunction run, std::initializer_list<TensorId> inputs,
           std::initializer_list<TensorId> outputs);
  TensorId quantized(TensorId x, int32_t group, int terms);
  void see_attention(int64_t layer_index, const AttentionSpec& spec);

  const InstructionSet& instruction_set_;
  std::vector<Operation> operations_;
  std::vector<Tensor> tensors_;
  std::vector<std::pair<std::tuple<TensorId, int32_t, int>, TensorId>>
      quantized_;                   // (x, group, terms) -> its quantization
  std::vector<WeightPtr> weights_;  // kept alive
  std::vector<VectorPtr> vectors_;
  std::vector<AttentionSpec> attention_;
  int64_t num_layers_ = 0;
  int64_t num_ids_ = INT64_MAX;
  TensorId output_ = -1;

  Memory memory_;
  std::vector<std::byte*> addresses_;
  std::vector<Task> tasks_;
};

}  // namespace paceline
