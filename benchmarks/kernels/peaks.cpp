#include "peaks.h"

#include <cstring>

#include "bench.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace paceline::bench {
namespace {

constexpr size_t kMemoryBytes = size_t{512} << 20;
constexpr size_t kTileBytes = size_t{2} << 20;
constexpr size_t kCachedBytes = size_t{512} << 10;  // a thread
constexpr int64_t kCachedTiles = 16;                // a thread, each reads kTileBytes
constexpr int64_t kArithmeticTiles = 16;            // a thread
constexpr int64_t kSteps = 60'000;                  // of a tile
constexpr int kChains = 12;                         // latency times throughput of any x86 so far, or more

struct ReadArgs {
  const std::byte* data;
  void (*read)(const std::byte* data, size_t bytes);
};

void read_memory_tile(const void* args, int64_t tile, int /*thread*/) {
  const auto& [data, read] = *static_cast<const ReadArgs*>(args);
  read(data + tile * kTileBytes, kTileBytes);
}

void read_cached_tile(const void* args, int64_t /*tile*/, int thread) {
  const auto& [data, read] = *static_cast<const ReadArgs*>(args);
  for (size_t done = 0; done < kTileBytes; done += kCachedBytes)
    read(data + thread * kCachedBytes, kCachedBytes);
}

void read_plain(const std::byte* data, size_t bytes) {
  int64_t sums[16] = {};
  for (size_t i = 0; i < bytes; i += sizeof sums)
    for (int k = 0; k < 16; ++k) {
      int64_t word;
      std::memcpy(&word, data + i + 8 * k, sizeof word);
      sums[k] += word;
    }
  for (const int64_t sum : sums) asm volatile("" ::"r"(sum));
}

struct Loop {
  TileFunction run = nullptr;      // nullptr: no such instruction
  double operations_per_step = 0;  // of one chain
};

#if defined(__x86_64__)
#define TARGET(sets) __attribute__((target(sets)))

TARGET("avx512f") void read_avx512(const std::byte* data, size_t bytes) {
  __m512i sums[8] = {};
  for (size_t i = 0; i < bytes; i += sizeof sums)
    for (int k = 0; k < 8; ++k) sums[k] = _mm512_add_epi64(sums[k], _mm512_load_si512(data + i + 64 * k));
  for (const __m512i& sum : sums) asm volatile("" ::"v"(sum));
}

// Independent chains of one instruction. What passes through empty assembly the compiler neither knows, nor
// finds the same in two chains, nor drops.
#define EACH_CHAIN(Vector) _Pragma("GCC unroll 12") for (Vector& sum : sums)
#define CHAINS(Vector, initial, sum_of)                                          \
  Vector x = initial, sums[kChains];                                             \
  asm volatile("" : "+v"(x));                                                    \
  EACH_CHAIN(Vector) asm volatile("" : "=v"(sum) : "0"(x));                      \
  for (int64_t step = 0; step < kSteps; ++step) EACH_CHAIN(Vector) sum = sum_of; \
  EACH_CHAIN(Vector) asm volatile("" ::"v"(sum))

TARGET("avx512f,avx512vnni") void int8_avx512(const void*, int64_t, int) {
  CHAINS(__m512i, _mm512_set1_epi8(1), _mm512_dpbusd_epi32(sum, x, x));
}

TARGET("avx512f,avx512bw,avx512vl,avx512bf16") void bfloat16_avx512(const void*, int64_t, int) {
  const __m512bh pairs = (__m512bh)_mm512_set1_epi32(0x3c003c00);
  CHAINS(__m512, _mm512_set1_ps(1), _mm512_dpbf16_ps(sum, pairs, pairs));
}

TARGET("avx512f") void float32_avx512(const void*, int64_t, int) {
  CHAINS(__m512, _mm512_set1_ps(1), _mm512_fmadd_ps(sum, x, x));
}

TARGET("avx2,fma") void float32_avx2(const void*, int64_t, int) {
  CHAINS(__m256, _mm256_set1_ps(1), _mm256_fmadd_ps(sum, x, x));
}

Loop loop_of(Arithmetic arithmetic) {
  const bool has_avx512 = __builtin_cpu_supports("avx512f");
  switch (arithmetic) {
    case Arithmetic::kInt8:
      return __builtin_cpu_supports("avx512vnni") ? Loop{int8_avx512, 128} : Loop{};
    case Arithmetic::kBfloat16:
      return __builtin_cpu_supports("avx512bf16") ? Loop{bfloat16_avx512, 64} : Loop{};
    case Arithmetic::kFloat32:
      if (has_avx512) return {float32_avx512, 32};
      return __builtin_cpu_supports("fma") ? Loop{float32_avx2, 16} : Loop{};
  }
  return {};
}

auto best_read() { return __builtin_cpu_supports("avx512f") ? read_avx512 : read_plain; }
#else
Loop loop_of(Arithmetic) { return {}; }
auto best_read() { return read_plain; }
#endif

}  // namespace

Peaks::Peaks(ThreadPool& pool) : pool_(pool), memory_(kMemoryBytes) {
  std::memset(memory_.as<void>(), 1, kMemoryBytes);
}

double Peaks::seconds(int64_t num_tiles, TileFunction run, const void* args) const {
  const Task task{num_tiles, run, args};
  const double start_s = now_s();
  pool_.run(&task, 1);
  return now_s() - start_s;
}

PeakFigures Peaks::probe() const {
  PeakFigures figures{};
  const int num_threads = pool_.num_threads();
  const ReadArgs reading{memory_.as<std::byte>(), best_read()};
  figures.read[0] = 1e-9 * kMemoryBytes / seconds(kMemoryBytes / kTileBytes, read_memory_tile, &reading);
  const int64_t cached = kCachedTiles * num_threads;
  figures.read[1] =
      1e-9 * static_cast<double>(cached * kTileBytes) / seconds(cached, read_cached_tile, &reading);
  for (size_t kind = 0; kind < figures.arithmetic.size(); ++kind) {
    const Loop loop = loop_of(static_cast<Arithmetic>(kind));
    if (loop.run == nullptr) continue;
    const int64_t tiles = kArithmeticTiles * num_threads;
    figures.arithmetic[kind] = 1e-9 * static_cast<double>(tiles * kSteps * kChains) *
                               loop.operations_per_step / seconds(tiles, loop.run, nullptr);
  }
  return figures;
}

}  // namespace paceline::bench
