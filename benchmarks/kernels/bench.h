// What kernels_bench measures: cells, each one kernel on one shape, timed as the engine runs it: a list of
// tasks on the thread pool, one a layer, with operands laid out as a session lays them out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isa.h"
#include "peaks.h"
#include "threads.h"

namespace paceline::bench {

constexpr int64_t kLayers = 30;  // of SmolLM2-135M, whose shapes are measured

struct Cell {
  std::string kernel, format, shape;
  int64_t rows;
  std::vector<Task> tasks;  // one pass, such as all layers of a step
  // Of one task: bytes that must move between the cores and where `source` says they come from, and
  // operations (a multiply-add is two) of the kind `arithmetic`.
  double bytes, operations;
  Source source;
  Arithmetic arithmetic;
};

// Empty lists choose everything.
struct Choice {
  int num_threads = 2;
  int num_repeats = 7;
  const InstructionSet* instruction_set = &best_instruction_set();
  std::vector<std::string> kernels, formats;
  std::vector<int64_t> rows;
};

class Bench {
 public:
  explicit Bench(const Choice& choice);

  bool wants(const std::string& kernel) const;
  bool wants(const std::string& kernel, const std::string& format) const;
  bool wants(const std::string& kernel, const std::string& format, int64_t rows) const;

  // Probes the peaks and times the cell right after, several times, and prints it all as a line of JSON.
  void measure(const Cell& cell);

  ThreadPool& pool() { return pool_; }
  const InstructionSet& instruction_set() const { return *choice_.instruction_set; }
  int64_t num_measured() const { return num_measured_; }

 private:
  Choice choice_;
  ThreadPool pool_;
  Peaks peaks_;
  int64_t num_measured_ = 0;
};

// The families. Each builds its cells one after the other, so that only one's operands are in memory.
void measure_linear(Bench& bench);
void measure_attention(Bench& bench);
void measure_row_kernels(Bench& bench);

// `count` numbers of a normal distribution, the same in every run.
std::vector<float> normal_numbers(int64_t count);

double now_s();

}  // namespace paceline::bench
