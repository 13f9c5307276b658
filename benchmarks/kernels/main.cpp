// kernels_bench: how fast each kernel is beside what the machine gives. `run.py` builds and runs it and makes
// tables of its lines.
//
//   kernels_bench [--threads N] [--repeats N] [--isa NAME] [--kernels a,b] [--formats a,b] [--rows 1,64]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <stdexcept>

#include "bench.h"

namespace paceline::bench {
namespace {

constexpr double kLeastRepeat_s = 2e-3;  // a shorter pass is repeated inside one timing

template <class Value>
bool chosen(const std::vector<Value>& list, const Value& value) {
  return list.empty() || std::find(list.begin(), list.end(), value) != list.end();
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

int64_t number(const std::string& option, const std::string& text, int64_t most) {
  size_t used = 0;
  int64_t value = 0;
  try {
    value = std::stoll(text, &used);
  } catch (const std::logic_error&) {
    used = 0;
  }
  if (used == 0 || used != text.size() || value < 1 || value > most)
    throw std::invalid_argument(option + " takes whole numbers from 1 to " + std::to_string(most) + ", not " +
                                text);
  return value;
}

Choice parse(int argc, char** argv) {
  Choice choice;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (i + 1 == argc) throw std::invalid_argument(option + " needs a value");
    const std::string value = argv[i + 1];
    if (option == "--threads") {
      choice.num_threads = static_cast<int>(number(option, value, 512));
    } else if (option == "--repeats") {
      choice.num_repeats = static_cast<int>(number(option, value, 1000));
    } else if (option == "--isa") {
      choice.instruction_set = find_instruction_set(value.c_str());
      if (choice.instruction_set == nullptr)
        throw std::invalid_argument("--isa: this processor has no kernels named " + value +
                                    "; without it the fastest are taken, " + best_instruction_set().name);
    } else if (option == "--kernels") {
      choice.kernels = split(value);
    } else if (option == "--formats") {
      choice.formats = split(value);
    } else if (option == "--rows") {
      for (const std::string& part : split(value)) choice.rows.push_back(number(option, part, 1 << 20));
    } else {
      throw std::invalid_argument("no option " + option);
    }
  }
  return choice;
}

// A cell's call in microseconds, and what the machine gave just before.
struct Sample {
  double time_us;
  PeakFigures peaks;
};

double passes_s(ThreadPool& pool, const Cell& cell, int num_passes) {
  const double start_s = now_s();
  for (int pass = 0; pass < num_passes; ++pass)
    pool.run(cell.tasks.data(), static_cast<int64_t>(cell.tasks.size()));
  return now_s() - start_s;
}

std::vector<Sample> samples_of(ThreadPool& pool, const Peaks& peaks, const Cell& cell, int num_repeats) {
  passes_s(pool, cell, 1);  // touches everything once
  const int num_passes = std::max(1, static_cast<int>(std::ceil(kLeastRepeat_s / passes_s(pool, cell, 1))));
  const double num_calls = static_cast<double>(num_passes) * static_cast<double>(cell.tasks.size());
  std::vector<Sample> samples(num_repeats);
  for (Sample& sample : samples) {
    sample.peaks = peaks.probe();
    if (cell.source == Source::kCache) passes_s(pool, cell, 1);
    sample.time_us = 1e6 * passes_s(pool, cell, num_passes) / num_calls;
  }
  return samples;
}

template <class Figure>
void print_figures(const char* key, const std::vector<Sample>& samples, const Figure& figure) {
  std::printf("\"%s\": [", key);
  for (const Sample& sample : samples)
    std::printf("%s%.4f", &sample == samples.data() ? "" : ", ", figure(sample));
  std::printf("]");
}

// An object of arrays, without what the processor lacks.
template <class Names, class Figures>
void print_peaks(const char* key, const Names& names, const std::vector<Sample>& samples, Figures figures) {
  std::printf(", \"%s\": {", key);
  const char* separator = "";
  for (size_t i = 0; i < names.size(); ++i) {
    if ((samples[0].peaks.*figures)[i] == 0) continue;
    std::printf("%s", separator);
    print_figures(names[i], samples, [&](const Sample& sample) { return (sample.peaks.*figures)[i]; });
    separator = ", ";
  }
  std::printf("}");
}

}  // namespace

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<float> normal_numbers(int64_t count) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  for (float& x : numbers) x = normal(random);
  return numbers;
}

Bench::Bench(const Choice& choice) : choice_(choice), pool_(choice.num_threads), peaks_(pool_) {}

bool Bench::wants(const std::string& kernel) const { return chosen(choice_.kernels, kernel); }

bool Bench::wants(const std::string& kernel, const std::string& format) const {
  return wants(kernel) && chosen(choice_.formats, format);
}

bool Bench::wants(const std::string& kernel, const std::string& format, int64_t rows) const {
  return wants(kernel, format) && chosen(choice_.rows, rows);
}

void Bench::measure(const Cell& cell) {
  ++num_measured_;
  const std::vector<Sample> samples = samples_of(pool_, peaks_, cell, choice_.num_repeats);
  std::printf(
      "{\"kernel\": \"%s\", \"format\": \"%s\", \"shape\": \"%s\", \"rows\": %ld, \"threads\": %d, "
      "\"isa\": \"%s\", \"bytes\": %.0f, \"operations\": %.0f, \"source\": \"%s\", \"arithmetic\": \"%s\", ",
      cell.kernel.c_str(), cell.format.c_str(), cell.shape.c_str(), static_cast<long>(cell.rows),
      pool_.num_threads(), choice_.instruction_set->name, cell.bytes, cell.operations,
      kSourceNames[static_cast<size_t>(cell.source)], kArithmeticNames[static_cast<size_t>(cell.arithmetic)]);
  print_figures("time_us", samples, [](const Sample& sample) { return sample.time_us; });
  print_peaks("read_gb_per_s", kSourceNames, samples, &PeakFigures::read);
  print_peaks("arithmetic_gop_per_s", kArithmeticNames, samples, &PeakFigures::arithmetic);
  std::printf("}\n");
  std::fflush(stdout);
}

}  // namespace paceline::bench

int main(int argc, char** argv) {
  using namespace paceline::bench;
  try {
    Bench bench(parse(argc, argv));
    measure_linear(bench);
    measure_attention(bench);
    measure_row_kernels(bench);
    if (bench.num_measured() > 0) return 0;
    std::fprintf(stderr,
                 "kernels_bench: nothing to measure: no cell has these kernels, formats and rows together; "
                 "leave one out\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernels_bench: %s\n", error.what());
  }
  return 2;
}
