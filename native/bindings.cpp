// The Python module: the one file that knows nanobind. It checks dtype, rank and contiguity and converts
// nothing (a converted copy would take an in-place write); shapes' meanings are checked where they are used.
// Arrays are read from the dataclasses of ops/protocol.py by name. The GIL is free while kernels run.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>

#include "session.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace paceline {
namespace {

template <class T, size_t rank>
using Array = nb::ndarray<T, nb::ndim<rank>, nb::c_contig, nb::device::cpu>;

// The array `owner.name`. T is const where it is only read.
template <class T, size_t rank = 1>
Array<T, rank> array(nb::handle owner, const char* name) {
  Array<T, rank> found;
  const nb::object value = nb::getattr(owner, name);
  if (nb::try_cast(value, found, false)) return found;
  const char* kind = std::is_floating_point_v<T> ? "float32"
                     : std::is_signed_v<T>       ? "int32"
                                                 : "an unsigned integer";
  throw nb::type_error((std::string(name) + ": must be a C-contiguous array of " +
                        std::to_string(sizeof(T) * 8) + " bits (" + kind + ") and rank " +
                        std::to_string(rank) + "; nothing is converted")
                           .c_str());
}

// Likewise, with `size` elements.
template <class T>
T* values(nb::handle owner, const char* name, size_t size) {
  const Array<T, 1> found = array<T>(owner, name);
  if (found.shape(0) == size) return found.data();
  throw nb::value_error((std::string(name) + ": has " + std::to_string(found.shape(0)) +
                         " elements, must have " + std::to_string(size))
                            .c_str());
}

// In the order of SourceKind.
constexpr const char* kKinds[] = {"F32",  "F16",  "BF16", "Q4_0", "Q4_1", "Q5_0",
                                  "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"};

SourceKind kind_named(const std::string& name) {
  for (size_t i = 0; i < std::size(kKinds); ++i)
    if (name == kKinds[i]) return static_cast<SourceKind>(i);
  throw nb::value_error(("tensor kind " + name + " is unknown").c_str());
}

// `tensor` is a HostTensor.
WeightPart weight_part(nb::handle tensor, int64_t depth) {
  const auto data = array<const uint8_t, 2>(tensor, "data");
  const SourceKind kind = kind_named(nb::cast<std::string>(tensor.attr("kind").attr("value")));
  const int64_t num_rows = nb::cast<int64_t>(tensor.attr("num_rows"));
  const int64_t row_bytes = source_row_bytes(kind, depth);
  const auto rows = static_cast<int64_t>(data.shape(0)), bytes = static_cast<int64_t>(data.shape(1));
  if (rows == num_rows && bytes == row_bytes && nb::cast<int64_t>(tensor.attr("columns")) == depth)
    return {kind, data.data(), num_rows};
  throw nb::value_error(("data is [" + std::to_string(rows) + ", " + std::to_string(bytes) + "], must be [" +
                         std::to_string(num_rows) + ", " + std::to_string(row_bytes) + "] with " +
                         std::to_string(depth) + " columns")
                            .c_str());
}

// What weights, programs and sessions share: threads and kernels.
struct Backend {
  std::shared_ptr<ThreadPool> threads;
  const InstructionSet& instruction_set;
  std::shared_ptr<Arena> weights = std::make_shared<Arena>();
};

Backend make_backend(int num_threads, const std::optional<std::string>& isa) {
  if (num_threads < 1) throw nb::value_error("num_threads must be at least 1");
  const InstructionSet* found = isa ? find_instruction_set(isa->c_str()) : &best_instruction_set();
  if (found == nullptr)
    throw nb::value_error(
        (*isa + " is not available on this machine; " + best_instruction_set().name + " is").c_str());
  return {std::make_shared<ThreadPool>(num_threads), *found};
}

// `per_channel`: requantize to int8 with one scale an output.
WeightPtr bind_weight(const Backend& backend, const std::vector<nb::object>& tensors, bool per_channel) {
  if (tensors.empty()) throw nb::value_error("a weight needs at least one tensor");
  const int64_t depth = nb::cast<int64_t>(tensors[0].attr("columns"));
  std::vector<WeightPart> parts;
  for (const nb::object& tensor : tensors) parts.push_back(weight_part(tensor, depth));
  nb::gil_scoped_release release;
  return make_weight(parts, depth, per_channel ? Packing::kChannel : Packing::kExact, *backend.threads,
                     backend.weights);
}

VectorPtr bind_vector(const Backend& backend, nb::object tensor) {
  const int64_t depth = nb::cast<int64_t>(tensor.attr("columns"));
  const WeightPart part = weight_part(tensor, depth);
  if (part.num_rows != 1) throw nb::value_error("a vector has one row");
  return make_vector(part, depth, *backend.threads);
}

AttentionSpec attention_spec(nb::handle shape) {
  const nb::object window = shape.attr("window"), soft_cap = shape.attr("soft_cap");
  return {nb::cast<int64_t>(shape.attr("num_heads")),
          nb::cast<int64_t>(shape.attr("num_kv_heads")),
          nb::cast<int64_t>(shape.attr("head_width")),
          nb::cast<float>(shape.attr("scale")),
          window.is_none() ? 0 : nb::cast<int64_t>(window),
          soft_cap.is_none() ? 0.0f : nb::cast<float>(soft_cap)};
}

GateKind gate_kind(nb::handle activation) {
  const auto name = nb::cast<std::string>(activation.attr("value"));
  if (name == "silu") return GateKind::kSilu;
  if (name == "gelu_tanh") return GateKind::kGeluTanh;
  throw nb::value_error(("activation " + name + " is unknown").c_str());
}

// In the order of KvFormat.
constexpr const char* kKvFormats[] = {"float32", "bfloat16", "int8"};

KvFormat kv_format(const std::string& name) {
  for (size_t i = 0; i < std::size(kKvFormats); ++i)
    if (name == kKvFormats[i]) return static_cast<KvFormat>(i);
  throw nb::value_error(("kv_format " + name + " is unknown").c_str());
}

KvPool kv_pool(nb::handle layout) {
  const auto number = [&](const char* name) { return nb::cast<int64_t>(layout.attr(name)); };
  return {nullptr,
          kv_format(nb::cast<std::string>(layout.attr("kv_format").attr("value"))),
          number("num_layers"),
          number("num_blocks"),
          number("block_size"),
          number("num_kv_heads"),
          number("head_width")};
}

// `shape` is a SessionShape, `rotary` a RotaryTable. The programs move into the session.
std::shared_ptr<Session> make_session(const Backend& backend, Program& layers, Program& head,
                                      nb::handle shape, nb::handle rotary) {
  const auto cos = array<const float, 2>(rotary, "cos"), sin = array<const float, 2>(rotary, "sin");
  if (cos.shape(0) != sin.shape(0) || cos.shape(1) != sin.shape(1))
    throw nb::value_error("rotary: cos and sin differ in shape");
  const SessionSpec spec{nb::cast<int64_t>(shape.attr("max_tokens")),
                         nb::cast<int64_t>(shape.attr("max_rows")),
                         kv_pool(shape.attr("kv")),
                         cos.data(),
                         sin.data(),
                         static_cast<int64_t>(cos.shape(0)),
                         static_cast<int64_t>(cos.shape(1))};
  return std::make_shared<Session>(backend.threads, backend.instruction_set, std::move(layers),
                                   std::move(head), spec);
}

void run_forward(Session& session, nb::handle batch) {
  const auto tokens = array<const int32_t>(batch, "tokens");
  const auto slots = array<const int32_t>(batch, "slots");
  const auto tables = array<const int32_t, 2>(batch, "block_tables");
  const StepRows rows{static_cast<int64_t>(tokens.shape(0)),
                      static_cast<int64_t>(slots.shape(0)),
                      values<const int32_t>(batch, "row_starts", slots.shape(0) + 1),
                      slots.data(),
                      values<const int32_t>(batch, "positions", tokens.shape(0)),
                      tables.data(),
                      static_cast<int64_t>(tables.shape(1))};
  const StepBatch step{tokens.data(), rows, static_cast<int64_t>(tables.shape(0))};
  nb::gil_scoped_release release;
  session.forward(step);
}

void run_copies(Session& session, const Array<const int32_t, 2>& copies) {
  if (copies.shape(1) != 3) throw nb::value_error("copies: rows are (source, target, num_tokens)");
  nb::gil_scoped_release release;
  session.copy_blocks(copies.data(), static_cast<int64_t>(copies.shape(0)));
}

void run_hidden(const Session& session, const Array<const int32_t, 1>& token_rows,
                const Array<float, 2>& out) {
  if (out.shape(0) != token_rows.shape(0) || static_cast<int64_t>(out.shape(1)) != session.width())
    throw nb::value_error("out: must be [token rows, width]");
  nb::gil_scoped_release release;
  session.hidden(token_rows.data(), static_cast<int64_t>(token_rows.shape(0)), out.data());
}

void run_logits(Session& session, const Array<const int32_t, 1>& token_rows, const Array<float, 2>& out) {
  if (out.shape(0) != token_rows.shape(0) || static_cast<int64_t>(out.shape(1)) != session.vocab_size())
    throw nb::value_error("out: must be [token rows, vocabulary]");
  nb::gil_scoped_release release;
  session.logits(token_rows.data(), static_cast<int64_t>(token_rows.shape(0)), out.data());
}

// `batch` is a SampleBatch, `result` a SampleResult.
SampleRows sample_rows(nb::handle batch, nb::handle result, size_t n) {
  SampleRows rows{};
  rows.targets = values<const int32_t>(batch, "targets", n);
  rows.slots = values<const int32_t>(batch, "slots", n);
  rows.num_known = values<const int32_t>(batch, "num_known", n);
  rows.num_prompt = values<const int32_t>(batch, "num_prompt", n);
  rows.temperature = values<const float>(batch, "temperature", n);
  rows.top_k = values<const int32_t>(batch, "top_k", n);
  rows.top_p = values<const float>(batch, "top_p", n);
  rows.min_p = values<const float>(batch, "min_p", n);
  rows.repetition = values<const float>(batch, "repetition", n);
  rows.presence = values<const float>(batch, "presence", n);
  rows.frequency = values<const float>(batch, "frequency", n);
  rows.seeds = values<const uint64_t>(batch, "seeds", n);
  rows.num_top = values<const int32_t>(batch, "num_top", n);
  rows.bias_starts = values<const int32_t>(batch, "bias_starts", n + 1);
  const auto bias_ids = array<const int32_t>(batch, "bias_ids");
  rows.bias_ids = bias_ids.data();
  rows.bias_values = values<const float>(batch, "bias_values", bias_ids.shape(0));
  rows.num_bias = static_cast<int64_t>(bias_ids.shape(0));
  rows.mask_rows = values<const int32_t>(batch, "mask_rows", n);
  const auto masks = array<const uint32_t, 2>(batch, "masks");
  rows.masks = masks.data();
  rows.num_masks = static_cast<int64_t>(masks.shape(0));
  rows.mask_stride = static_cast<int64_t>(masks.shape(1));
  const auto histories = array<const int32_t, 2>(batch, "histories");
  rows.histories = histories.data();
  rows.history_rows = static_cast<int64_t>(histories.shape(0));
  rows.history_stride = static_cast<int64_t>(histories.shape(1));
  rows.tokens = values<int32_t>(result, "tokens", n);
  rows.logprobs = values<float>(result, "logprobs", n);
  const auto top_ids = array<int32_t, 2>(result, "top_ids");
  const auto top_logprobs = array<float, 2>(result, "top_logprobs");
  if (top_ids.shape(0) != n || top_logprobs.shape(0) != n || top_ids.shape(1) != top_logprobs.shape(1))
    throw nb::value_error("top_ids and top_logprobs: must both be [token rows, alternatives]");
  rows.top_ids = top_ids.data();
  rows.top_logprobs = top_logprobs.data();
  rows.top_stride = static_cast<int64_t>(top_ids.shape(1));
  return rows;
}

void run_sample(Session& session, nb::handle batch, nb::handle result) {
  const auto token_rows = array<const int32_t>(batch, "token_rows");
  const SampleRows rows = sample_rows(batch, result, token_rows.shape(0));
  nb::gil_scoped_release release;
  session.sample(token_rows.data(), static_cast<int64_t>(token_rows.shape(0)), rows);
}

void bind_program(nb::module_& module) {
  nb::class_<Program>(module, "Program")
      .def("input", &Program::input, "width"_a)
      .def("embed", &Program::embed, "table"_a)
      .def("norm", &Program::norm, "x"_a, "weight"_a, "epsilon"_a)
      .def("add_norm", &Program::add_norm, "x"_a, "residual"_a, "weight"_a, "epsilon"_a)
      .def("linear", &Program::linear, "x"_a, "weight"_a, "bias"_a.none(), "precise"_a)
      .def("rotary_store",
           [](Program& p, TensorId qkv, int64_t layer_index, nb::handle shape) {
             return p.rotary_store(qkv, layer_index, attention_spec(shape));
           })
      .def("attend", [](Program& p, TensorId q, int64_t layer_index,
                        nb::handle shape) { return p.attend(q, layer_index, attention_spec(shape)); })
      .def("gated",
           [](Program& p, TensorId x, nb::handle activation) { return p.gated(x, gate_kind(activation)); })
      .def("take_rows", &Program::take_rows, "x"_a)
      .def("set_output", &Program::set_output, "output"_a)
      .def_prop_ro("output_width", &Program::output_width);
}

}  // namespace
}  // namespace paceline

NB_MODULE(_native, module) {
  using namespace paceline;
  nb::class_<Weight>(module, "Weight");
  nb::class_<Vector>(module, "Vector");
  bind_program(module);
  nb::class_<Session>(module, "Session")
      .def("copy_blocks", run_copies, nb::arg("copies").noconvert())
      .def("forward", run_forward, "batch"_a)
      .def("hidden", run_hidden, nb::arg("token_rows").noconvert(), nb::arg("out").noconvert())
      .def("logits", run_logits, nb::arg("token_rows").noconvert(), nb::arg("out").noconvert())
      .def("sample", run_sample, "batch"_a, "result"_a)
      .def_prop_ro("width", &Session::width)
      .def_prop_ro("vocab_size", &Session::vocab_size);
  nb::class_<Backend>(module, "Backend")
      .def("weight", bind_weight, "tensors"_a, "per_channel"_a = false)
      .def("vector", bind_vector, "tensor"_a)
      .def("program", [](const Backend& backend) { return Program(backend.instruction_set); })
      .def("session", make_session, "layers"_a, "head"_a, "shape"_a, "rotary"_a)
      .def_prop_ro("isa", [](const Backend& backend) { return backend.instruction_set.name; });
  module.def("make_backend", make_backend, "num_threads"_a, "isa"_a.none());
}
