// Linear layers of SmolLM2-135M in each weight format. Each shape has so many copies that they exceed the
// caches, and a pass goes through all: weights come from memory, as in a model whose other layers ran in
// between.
#include <cstring>
#include <random>

#include "bench.h"
#include "linear.h"
#include "weight.h"

namespace paceline::bench {
namespace {

constexpr const char* kKernel = "linear";
// So many times the last cache that it keeps next to nothing of them; many rows use a weight long enough for
// less.
constexpr size_t kCopiesBytes = size_t{512} << 20, kManyRowsBytes = size_t{96} << 20;
constexpr int64_t kManyRows = 32;
constexpr int64_t kRows[] = {1, 2, 4, 8, 16, 32, 64, 256};
constexpr int64_t kMostRows = 256;

struct Format {
  const char* name;
  SourceKind kind;
  Packing packing;
  bool has_head;  // files keep the output projection in 8 bits
};
constexpr Format kFormats[] = {{"Q4_1", SourceKind::Q4_1, Packing::kExact, false},
                               {"Q4_0", SourceKind::Q4_0, Packing::kExact, false},
                               {"Q8_0", SourceKind::Q8_0, Packing::kExact, true},
                               {"int8", SourceKind::Q8_0, Packing::kChannel, true}};

struct Shape {
  const char* name;
  int64_t outputs, depth;
  bool is_head;
};
constexpr Shape kShapes[] = {{"qkv 960x576", 960, 576, false},
                             {"o 576x576", 576, 576, false},
                             {"gate_up 3072x576", 3072, 576, false},
                             {"down 576x1536", 576, 1536, false},
                             {"head 49152x576", 49152, 576, true}};

std::shared_ptr<const Weight> random_weight(Bench& bench, const Format& format, const Shape& shape) {
  std::mt19937 random(7);
  std::vector<uint8_t> rows(shape.outputs * source_row_bytes(format.kind, shape.depth));
  // Small enough that scales, whichever bytes hold them, are finite.
  for (uint8_t& byte : rows) byte = static_cast<uint8_t>(random() & 0x1f);
  return make_weight({{format.kind, rows.data(), shape.outputs}}, shape.depth, format.packing, bench.pool(),
                     std::make_shared<Arena>());
}

// In an arena, as a backend holds its weights.
struct Copies {
  explicit Copies(const Weight& weight) {
    const size_t bytes = packed_bytes(weight.packed);
    for (size_t i = 0; i * bytes < kCopiesBytes; ++i) {
      std::byte* copy = arena.take(bytes);
      std::memcpy(copy, weight.packed.data, bytes);
      weights.push_back(weight.packed);
      weights[i].data = reinterpret_cast<uint8_t*>(copy);
    }
  }
  Arena arena;
  std::vector<PackedWeight> weights;
};

class LinearCells {
 public:
  // The output projection keeps what quantization left of its activations, except in int8 (program.cpp).
  LinearCells(Bench& bench, const Format& format, const Shape& shape)
      : bench_(bench),
        format_(format),
        shape_(shape),
        is_precise_(shape.is_head && format.packing == Packing::kExact),
        weight_(random_weight(bench, format, shape)),
        copies_(*weight_),
        x_(normal_numbers(kMostRows * shape.depth)),
        q_(quantized_bytes(kMostRows, shape.depth)),
        residual_(quantized_bytes(kMostRows, shape.depth)),
        y_(kMostRows * shape.outputs * sizeof(float)) {}

  void measure(int64_t rows) {
    const QuantizedRows q = quantized_view(q_.as<void>(), rows, shape_.depth);
    QuantizedRows residual{};
    if (is_precise_) residual = quantized_view(residual_.as<void>(), rows, shape_.depth);
    const QuantizeArgs quantize{x_.data(), rows, shape_.depth, weight_->packed.group, q, residual};
    const Task task{quantize_tiles(quantize), bench_.instruction_set().quantize, &quantize};
    bench_.pool().run(&task, 1);

    const size_t bytes = packed_bytes(weight_->packed);
    std::vector<LinearArgs> calls;
    for (const PackedWeight& weight : copies_.weights)
      if (rows < kManyRows || calls.size() * bytes < kManyRowsBytes)
        calls.push_back({&weight, nullptr, q, residual, nullptr, rows, y_.as<float>()});
    Cell cell{kKernel, format_.name, shape_.name, rows, {}, 0, 0, Source::kMemory, Arithmetic::kInt8};
    for (const LinearArgs& call : calls)
      cell.tasks.push_back({linear_tiles(call), bench_.instruction_set().linear, &call});
    cell.bytes = static_cast<double>(bytes);
    cell.operations = 2.0 * shape_.outputs * shape_.depth * rows * (is_precise_ ? 2 : 1);
    bench_.measure(cell);
  }

 private:
  Bench& bench_;
  const Format& format_;
  const Shape& shape_;
  bool is_precise_;
  std::shared_ptr<const Weight> weight_;
  Copies copies_;
  std::vector<float> x_;
  Memory q_, residual_, y_;
};

bool wants_any_rows(const Bench& bench, const Format& format) {
  for (const int64_t rows : kRows)
    if (bench.wants(kKernel, format.name, rows)) return true;
  return false;
}

}  // namespace

void measure_linear(Bench& bench) {
  for (const Format& format : kFormats) {
    if (!wants_any_rows(bench, format)) continue;
    for (const Shape& shape : kShapes) {
      if (shape.is_head && !format.has_head) continue;
      LinearCells cells(bench, format, shape);
      for (const int64_t rows : kRows)
        if (bench.wants(kKernel, format.name, rows)) cells.measure(rows);
    }
  }
}

}  // namespace paceline::bench
