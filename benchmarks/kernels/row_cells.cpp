// Kernels that treat each row by itself. A pass calls them once a layer on the same activations, as a step
// does: what they read was just written and lies in the caches. Softmax reads logits from memory, once a
// step.
#include <algorithm>

#include "bench.h"
#include "linear.h"
#include "rows.h"
#include "softmax.h"

namespace paceline::bench {
namespace {

constexpr int64_t kRows[] = {1, 64, 256};
constexpr int64_t kModelWidth = 576, kFeedForward = 1536, kVocabulary = 49152, kHeadRows = 64;
constexpr int64_t kActivationGroupOfQ4 = 32;
constexpr const char* kFloat32 = "float32";

// Operations an element, as written; an exponential is 18 of them.
constexpr double kExpOperations = 18;
constexpr double kNormOperations = 5;      // sum, square and its sum, scale, weight
constexpr double kQuantizeOperations = 5;  // largest, scale, round, sum, rest
constexpr double kGatedOperations = kExpOperations + 4;
constexpr double kSoftmaxOperations = kExpOperations + 4;  // largest, difference, scale, sum

Cell layers(const char* kernel, const char* shape, int64_t rows, const Task& task) {
  return {kernel,
          kFloat32,
          shape,
          rows,
          std::vector<Task>(kLayers, task),
          0,
          0,
          Source::kCache,
          Arithmetic::kFloat32};
}

void measure_norm(Bench& bench, int64_t rows) {
  const int64_t size = rows * kModelWidth;
  const std::vector<float> x = normal_numbers(size), weight = normal_numbers(kModelWidth);
  std::vector<float> y(size), sum(size);
  const NormArgs args{x.data(), x.data(), weight.data(), 1e-5f, rows, kModelWidth, y.data(), sum.data()};
  Cell cell = layers("norm", "576", rows, {norm_tiles(args), bench.instruction_set().norm, &args});
  cell.bytes = 4.0 * sizeof(float) * size;  // x, residual, their sum, the result
  cell.operations = kNormOperations * size;
  bench.measure(cell);
}

void measure_gated(Bench& bench, int64_t rows) {
  const int64_t size = rows * kFeedForward;
  const std::vector<float> gate_up = normal_numbers(2 * size);
  std::vector<float> y(size);
  const GatedArgs args{gate_up.data(), GateKind::kSilu, rows, kFeedForward, y.data()};
  Cell cell = layers("gated", "1536", rows, {gated_tiles(args), bench.instruction_set().gated, &args});
  cell.bytes = 3.0 * sizeof(float) * size;
  cell.operations = kGatedOperations * size;
  bench.measure(cell);
}

void measure_quantize(Bench& bench, const char* shape, int64_t depth, int64_t rows) {
  const int64_t size = rows * depth;
  const std::vector<float> x = normal_numbers(size);
  const Memory memory(quantized_bytes(rows, depth));
  const QuantizeArgs args{
      x.data(), rows, depth, kActivationGroupOfQ4, quantized_view(memory.as<void>(), rows, depth), {}};
  Cell cell =
      layers("quantize", shape, rows, {quantize_tiles(args), bench.instruction_set().quantize, &args});
  // The numbers in and out, and scale, offset and sum of each group.
  cell.bytes = (sizeof(float) + 1.0 + 3.0 * sizeof(float) / kActivationGroupOfQ4) * size;
  cell.operations = kQuantizeOperations * size;
  bench.measure(cell);
}

// What a sampler does with each row: its largest logit, and the sum of exponentials. There are logits of
// kHeadRows rows at most at a time, as in a session.
struct SoftmaxArgs {
  const SoftmaxKernels* kernels;
  const float* logits;
  double* sums;
};

void softmax_row(const SoftmaxArgs& args, int64_t row, int /*thread*/) {
  const float* logits = args.logits + row % kHeadRows * kVocabulary;
  const float largest = args.kernels->maximum(logits, kVocabulary);
  args.sums[row] = args.kernels->sum_exp(logits, kVocabulary, largest, 1.0f);
}

void measure_softmax(Bench& bench, int64_t rows) {
  const int64_t size = rows * kVocabulary;
  const std::vector<float> logits = normal_numbers(std::min(rows, kHeadRows) * kVocabulary);
  std::vector<double> sums(rows);
  const SoftmaxArgs args{bench.instruction_set().softmax, logits.data(), sums.data()};
  Cell cell = layers("softmax", "49152", rows, {rows, run_tile<SoftmaxArgs, softmax_row>, &args});
  cell.tasks.resize(1);
  cell.bytes = 1.0 * sizeof(float) * size;
  cell.operations = kSoftmaxOperations * size;
  bench.measure(cell);
}

}  // namespace

void measure_row_kernels(Bench& bench) {
  for (const int64_t rows : kRows) {
    if (bench.wants("norm", kFloat32, rows)) measure_norm(bench, rows);
    if (bench.wants("gated", kFloat32, rows)) measure_gated(bench, rows);
    if (bench.wants("quantize", kFloat32, rows)) {
      measure_quantize(bench, "576", kModelWidth, rows);
      measure_quantize(bench, "1536", kFeedForward, rows);
    }
    if (bench.wants("softmax", kFloat32, rows)) measure_softmax(bench, rows);
  }
}

}  // namespace paceline::bench
