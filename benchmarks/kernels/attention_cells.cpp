// Attention and the store of keys and values in SmolLM2-135M's 30 layers, whose KV lies in a paged pool with
// shuffled blocks. What attention reads was written by rotary_store.
#include <algorithm>
#include <random>

#include "attention.h"
#include "bench.h"

namespace paceline::bench {
namespace {

constexpr int64_t kHeads = 9, kKvHeads = 3, kWidth = 64, kBlockSize = 16;
constexpr int64_t kQueryWidth = kHeads * kWidth, kQkvWidth = (kHeads + 2 * kKvHeads) * kWidth;
constexpr double kRotaryOperations = 3;  // of a rotated element: two products and a sum

struct Format {
  const char* name;
  KvFormat format;
  double operations;  // of an element of K and one of V, for a query
};
// int8 multiplies V by weights of two terms.
constexpr Format kFormats[] = {{"bfloat16", KvFormat::kBfloat16, 4}, {"int8", KvFormat::kInt8, 6}};

// Rows (sequences) with `num_tokens` each in the step, after `context` tokens of theirs.
struct Case {
  const char* kernel;
  const char* shape;
  int64_t num_rows, num_tokens, context;
};
constexpr Case kCases[] = {{"attention_decode", "192 keys", 64, 1, 191},
                           {"attention_decode", "4000 keys", 1, 1, 3999},
                           {"attention_prefill", "context 0", 1, 256, 0},
                           {"attention_prefill", "context 2048", 1, 256, 2048},
                           {"attention_prefill", "context 4000", 1, 256, 4000},
                           {"rotary_store", "960", 1, 1, 191},
                           {"rotary_store", "960", 64, 1, 191},
                           {"rotary_store", "960", 1, 256, 0}};

// The arrays behind StepRows: `num_tokens` of each row from position `context` on.
struct Batch {
  Batch(int64_t num_rows, int64_t num_tokens, int64_t context, const std::vector<int32_t>& block_tables) {
    for (int64_t row = 0; row <= num_rows; ++row) starts.push_back(static_cast<int32_t>(row * num_tokens));
    for (int64_t row = 0; row < num_rows; ++row) slots.push_back(static_cast<int32_t>(row));
    for (int64_t token = 0; token < num_rows * num_tokens; ++token)
      positions.push_back(static_cast<int32_t>(context + token % num_tokens));
    rows = {num_rows * num_tokens,
            num_rows,
            starts.data(),
            slots.data(),
            positions.data(),
            block_tables.data(),
            static_cast<int64_t>(block_tables.size()) / num_rows};
  }
  std::vector<int32_t> starts, slots, positions;
  StepRows rows;
};

class AttentionCells {
 public:
  AttentionCells(Bench& bench, const Format& format, const Case& shape)
      : bench_(bench),
        format_(format),
        case_(shape),
        length_(shape.context + shape.num_tokens),
        row_blocks_((length_ + kBlockSize - 1) / kBlockSize),
        kv_{nullptr, format.format, kLayers, shape.num_rows * row_blocks_, kBlockSize, kKvHeads, kWidth},
        kv_memory_(kv_pool_bytes(kv_)),
        limits_{shape.num_rows * length_, length_, kHeads, kKvHeads, kWidth, bench.pool().num_threads()},
        plan_memory_(attend_plan_bytes(limits_)),
        qkv_(normal_numbers(shape.num_rows * length_ * kQkvWidth)),
        turns_(length_ * kWidth / 2, 0.70710678f),
        q_(shape.num_rows * length_ * kQueryWidth),
        output_(q_.size()) {
    kv_.data = kv_memory_.as<void>();
    for (int64_t block = 0; block < kv_.num_blocks; ++block) tables_.push_back(static_cast<int32_t>(block));
    std::shuffle(tables_.begin(), tables_.end(), std::mt19937(1));
    attend_plan_place(plan_, limits_, plan_memory_.as<void>());
    scratch_stride_ = (attend_scratch_bytes(limits_) + 63) / 64 * 64;
    scratch_ = Memory(scratch_stride_ * bench.pool().num_threads());
  }

  void measure() {
    const Batch everything(case_.num_rows, length_, 0, tables_);
    const std::vector<RotaryStoreArgs> stores = rotary_store(everything);
    const std::vector<Task> storing =
        tasks(stores, rotary_store_tiles, bench_.instruction_set().rotary_store);
    bench_.pool().run(storing.data(), kLayers);

    const Batch step(case_.num_rows, case_.num_tokens, case_.context, tables_);
    if (case_.kernel == std::string("rotary_store"))
      measure_store(step);
    else
      measure_attend(step);
  }

 private:
  double token_bytes() const {
    return static_cast<double>(kv_pool_bytes(kv_)) / (kLayers * kv_.num_blocks * kBlockSize);
  }

  // Only AVX-512 has products of bfloat16; other sets widen.
  Arithmetic arithmetic() const {
    if (format_.format == KvFormat::kInt8) return Arithmetic::kInt8;
    const bool has_products = bench_.instruction_set().name == std::string("avx512");
    return has_products ? Arithmetic::kBfloat16 : Arithmetic::kFloat32;
  }

  template <class Args>
  std::vector<Task> tasks(const std::vector<Args>& calls, int64_t (*num_tiles)(const Args&),
                          TileFunction run) {
    std::vector<Task> list;
    for (const Args& call : calls) list.push_back({num_tiles(call), run, &call});
    return list;
  }

  std::vector<RotaryStoreArgs> rotary_store(const Batch& batch) {
    std::vector<RotaryStoreArgs> calls;
    for (int64_t layer = 0; layer < kLayers; ++layer)
      calls.push_back({&batch.rows, &kv_, layer, kHeads, qkv_.data(), q_.data(), turns_.data(), turns_.data(),
                       kWidth / 2});
    return calls;
  }

  void measure_store(const Batch& step) {
    const std::vector<RotaryStoreArgs> calls = rotary_store(step);
    Cell cell = named(step);
    cell.tasks = tasks(calls, rotary_store_tiles, bench_.instruction_set().rotary_store);
    const double num_tokens = static_cast<double>(step.rows.num_tokens);
    cell.bytes = num_tokens * ((kQkvWidth + kQueryWidth) * sizeof(float) + token_bytes());
    cell.operations = num_tokens * (kHeads + kKvHeads) * kWidth * kRotaryOperations;
    cell.source = Source::kCache;
    cell.arithmetic = Arithmetic::kFloat32;
    bench_.measure(cell);
  }

  void measure_attend(const Batch& step) {
    attend_plan(plan_, step.rows);
    std::vector<AttendArgs> calls;
    for (int64_t layer = 0; layer < kLayers; ++layer)
      calls.push_back({&step.rows, &kv_, &plan_, layer, kHeads, 0.125f, 0, 0, q_.data(), output_.data(),
                       scratch_.as<std::byte>(), scratch_stride_});
    Cell cell = named(step);
    cell.tasks = tasks(calls, attend_tiles, bench_.instruction_set().attend);
    cell.bytes = static_cast<double>(case_.num_rows * length_) * token_bytes();
    double pairs = 0;  // of a query and a key it sees
    for (const int32_t position : step.positions) pairs += position + 1;
    cell.operations = pairs * kHeads * kWidth * format_.operations;
    cell.source = Source::kMemory;
    cell.arithmetic = arithmetic();
    bench_.measure(cell);
  }

  Cell named(const Batch& step) const {
    return {case_.kernel, format_.name, case_.shape, step.rows.num_tokens, {}, 0, 0, {}, {}};
  }

  Bench& bench_;
  const Format& format_;
  const Case& case_;
  int64_t length_, row_blocks_;
  KvPool kv_;
  Memory kv_memory_;
  AttendLimits limits_;
  Memory plan_memory_;
  AttendPlan plan_;
  std::vector<float> qkv_, turns_, q_, output_;
  std::vector<int32_t> tables_;
  size_t scratch_stride_;
  Memory scratch_;
};

}  // namespace

void measure_attention(Bench& bench) {
  for (const Format& format : kFormats)
    for (const Case& shape : kCases)
      if (bench.wants(shape.kernel, format.name, shape.num_rows * shape.num_tokens))
        AttentionCells(bench, format, shape).measure();
}

}  // namespace paceline::bench
