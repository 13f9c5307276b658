// Speed of attention in 8 layers of SmolLM2's shape (9 heads, 3 kv heads, width 64, bfloat16): a 512-token
// chunk after some context, in GFLOP/s beside the machine's vdpbf16ps peak; decodes in GB/s of K and V beside
// a plain read of memory. Best of several on two threads; with the argument 1, one thread in its own CPU
// time, which a busy machine disturbs less.
//
//   flags="-std=c++20 -O3 -ffp-contract=off -fno-math-errno -march=native -Inative -lpthread"
//   g++ benchmarks/kernels/attention_bench.cpp native/attention_*.cpp native/kv_pool.cpp $flags -o bench

#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "attention.h"

using namespace paceline;

namespace {

int num_threads = 2;
constexpr int64_t kLayers = 8, kHeads = 9, kKvHeads = 3, kWidth = 64, kBlock = 16;

double now_s() {
  if (num_threads == 1) {
    timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return used.tv_sec + used.tv_nsec * 1e-9;
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// All threads claim tiles of every layer in turn, with a spinning barrier after each: as a step does.
template <class Tiles>
void run_layers(int64_t tiles, const Tiles& run_tile) {
  std::vector<int64_t> next(kLayers, 0);
  int64_t arrived = 0;
  const auto work = [&](int thread) {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      for (int64_t tile; (tile = __atomic_fetch_add(&next[layer], 1, __ATOMIC_RELAXED)) < tiles;)
        run_tile(layer, tile, thread);
      __atomic_fetch_add(&arrived, 1, __ATOMIC_ACQ_REL);
      while (__atomic_load_n(&arrived, __ATOMIC_ACQUIRE) < num_threads * (layer + 1)) _mm_pause();
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < num_threads; ++thread) others.emplace_back(work, thread);
  work(0);
  for (std::thread& other : others) other.join();
}

struct Case {
  int64_t num_rows;
  int64_t context;     // tokens before the step's
  int64_t num_tokens;  // of each row
};

void* memory_of(size_t bytes) {
  constexpr size_t kHuge = 2 << 20;
  const size_t rounded = (bytes + kHuge - 1) / kHuge * kHuge;
  void* memory = std::aligned_alloc(kHuge, rounded);
  madvise(memory, rounded, MADV_HUGEPAGE);
  std::memset(memory, 0, rounded);
  return memory;
}

// Seconds of one step's attention (all layers), best of `repeats`.
double time_case(const Case& c, int repeats) {
  const int64_t length = c.context + c.num_tokens, row_blocks = (length + kBlock - 1) / kBlock;
  const int64_t num_tokens = c.num_rows * c.num_tokens;
  KvPool pool{nullptr, KvFormat::kBfloat16, kLayers, c.num_rows * row_blocks, kBlock, kKvHeads, kWidth};
  pool.data = memory_of(kv_pool_bytes(pool));
  std::mt19937 random(1);
  uint16_t* elements = static_cast<uint16_t*>(pool.data);
  for (size_t i = 0; i < kv_pool_bytes(pool) / 2; ++i) elements[i] = 0x3d00 + (random() & 0x80ff);
  std::vector<int32_t> starts, slots, positions, tables(c.num_rows * row_blocks);
  for (size_t i = 0; i < tables.size(); ++i) tables[i] = i;
  std::shuffle(tables.begin(), tables.end(), random);
  for (int64_t row = 0; row <= c.num_rows; ++row) starts.push_back(row * c.num_tokens), slots.push_back(row);
  for (int64_t i = 0; i < num_tokens; ++i) positions.push_back(c.context + i % c.num_tokens);
  const StepRows rows{num_tokens,       c.num_rows,    starts.data(), slots.data(),
                      positions.data(), tables.data(), row_blocks};
  std::vector<float> q(num_tokens * kHeads * kWidth), output(q.size());
  for (float& x : q) x = static_cast<float>(random() % 1000) / 500 - 1;
  const AttendLimits limits{num_tokens, length, kHeads, kKvHeads, kWidth, num_threads};
  AttendPlan plan;
  attend_plan_place(plan, limits, memory_of(attend_plan_bytes(limits)));
  attend_plan(plan, rows);
  AttendArgs args{&rows,    &pool,         &plan,   0,
                  kHeads,   0.125f,        0,       0,
                  q.data(), output.data(), nullptr, attend_scratch_bytes(limits)};
  args.scratch = static_cast<std::byte*>(memory_of(args.scratch_stride * num_threads));
  double best = 1e9;
  for (int i = 0; i < repeats; ++i) {
    const double start = now_s();
    run_layers(attend_tiles(args), [&](int64_t layer, int64_t tile, int thread) {
      AttendArgs of_layer = args;
      of_layer.layer_index = layer;
      avx512::attend(of_layer, tile, thread);
    });
    best = std::min(best, now_s() - start);
  }
  std::free(pool.data), std::free(plan.items), std::free(args.scratch);
  return best;
}

// GFLOP/s of vdpbf16ps with everything in registers, all threads.
double peak_gflops() {
  constexpr int64_t kSteps = 20'000'000;
  double best = 0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const double start = now_s();
    const auto work = [] {
      __m512 sums[12] = {};
      const __m512bh x = (__m512bh)_mm512_set1_epi32(0x3c003c00);
      for (int64_t i = 0; i < kSteps; i += 12)
#pragma GCC unroll 12
        for (int k = 0; k < 12; ++k) sums[k] = _mm512_dpbf16_ps(sums[k], x, x);
      for (const __m512& sum : sums) asm volatile("" ::"v"(sum));
    };
    std::vector<std::thread> others;
    for (int thread = 1; thread < num_threads; ++thread) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
    best = std::max(best, num_threads * kSteps * 64.0 / (now_s() - start) * 1e-9);
  }
  return best;
}

// GB/s of reading memory in order, all threads.
double read_gb_per_s() {
  constexpr size_t kBytes = 256 << 20;
  const char* memory = static_cast<const char*>(memory_of(kBytes));
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const double start = now_s();
    const auto work = [&](int thread) {
      __m512i sum = _mm512_setzero_si512();
      const size_t part = kBytes / num_threads;
      for (size_t at = part * thread; at < part * (thread + 1); at += 64)
        sum = _mm512_xor_si512(sum, _mm512_load_si512(memory + at));
      asm volatile("" ::"v"(sum));
    };
    std::vector<std::thread> others;
    for (int thread = 1; thread < num_threads; ++thread) others.emplace_back(work, thread);
    work(0);
    for (std::thread& other : others) other.join();
    best = std::max(best, kBytes / (now_s() - start) * 1e-9);
  }
  std::free(const_cast<char*>(memory));
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) num_threads = std::atoi(argv[1]);
  std::printf("vdpbf16ps peak, %d thread(s): %.0f GFLOP/s\n", num_threads, peak_gflops());
  std::printf("memory read: %.1f GB/s\n", read_gb_per_s());
  for (const int64_t context : {0, 1500, 4000}) {
    const double seconds = time_case({1, context, 512}, 7);
    const double pairs = 512.0 * context + 512.0 * 513 / 2;  // query, visible key
    std::printf("chunk of 512 after %4ld: %7.3f ms, %4.0f GFLOP/s\n", static_cast<long>(context),
                seconds * 1e3, pairs * kHeads * kWidth * 4 * kLayers / seconds * 1e-9);
  }
  for (const int64_t context : {256, 2048})
    for (const int64_t num_rows : {1, 8, 64}) {
      const double seconds = time_case({num_rows, context - 1, 1}, 15);
      const double bytes = 1.0 * num_rows * context * kKvHeads * kWidth * 4 * kLayers;
      std::printf("%2ld decodes at %4ld: %8.1f us, %5.1f GB/s of KV\n", static_cast<long>(num_rows),
                  static_cast<long>(context), seconds * 1e6, bytes / seconds * 1e-9);
    }
}
