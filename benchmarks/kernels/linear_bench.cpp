// Speed of the linear family on two pinned threads: GB/s of packed weights for one row, GOP/s for many.
//
//   cd benchmarks/kernels && make linear_bench && ./linear_bench [threads]
//
// "memory" rotates over copies of a layer that together exceed the caches; "cache" repeats one copy. Beside
// each memory figure runs a probe that only reads as many bytes, because a shared machine's bandwidth moves
// by the minute. Best of several passes: noise only ever adds time.
#include <immintrin.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "../../native/linear.h"

using namespace paceline;

namespace {

constexpr size_t kMemoryBytes = size_t{96} << 20;
constexpr double kPassOps = 3e9;
constexpr int kPasses = 9;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

uint8_t* allocate(size_t bytes) {
  const size_t size = (bytes + (2 << 20) - 1) >> 21 << 21;
  void* memory = std::aligned_alloc(2 << 20, size);
  madvise(memory, size, MADV_HUGEPAGE);
  std::memset(memory, 1, size);
  return static_cast<uint8_t*>(memory);
}

double cpu_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

struct Time {
  double wall = 1e9, cpu = 1e9;
  void keep_best(const Time& other) {
    wall = std::min(wall, other.wall);
    cpu = std::min(cpu, other.cpu);
  }
};

// Spins: the engine's own pool has its own bench. Runs body(thread) on every thread and returns the wall
// time.
class Threads {
 public:
  explicit Threads(int count) : count_(count) {
    for (int i = 0; i < count; ++i) workers_.emplace_back([this, i] { work(i); });
  }
  ~Threads() {
    body_ = nullptr;
    generation_.fetch_add(1);
    for (std::thread& worker : workers_) worker.join();
  }
  Time run(const std::function<void(int)>& body) {
    body_ = &body;
    finished_ = 0;
    cpu_ = 0;
    const double start = seconds();
    generation_.fetch_add(1, std::memory_order_release);
    while (finished_.load(std::memory_order_acquire) < count_) std::this_thread::yield();
    return {seconds() - start, cpu_ / count_};
  }

 private:
  void work(int index) {
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(index, &core);
    pthread_setaffinity_np(pthread_self(), sizeof core, &core);
    for (int seen = 0;;) {
      while (generation_.load(std::memory_order_acquire) == seen) _mm_pause();
      ++seen;
      if (body_ == nullptr) return;
      const double start = cpu_seconds();
      (*body_)(index);
      cpu_ += cpu_seconds() - start;
      finished_.fetch_add(1, std::memory_order_release);
    }
  }
  int count_;
  const std::function<void(int)>* body_ = nullptr;
  std::atomic<int> generation_{0}, finished_{0};
  std::atomic<double> cpu_{0};
  std::vector<std::thread> workers_;
};

struct Layer {
  const char* name;
  SourceKind kind;
  Packing packing;
  int64_t outputs, depth;
};

PackedWeight random_weight(const Layer& layer) {
  std::mt19937 random(7);
  const auto row_bytes = static_cast<size_t>(source_row_bytes(layer.kind, layer.depth));
  std::vector<uint8_t> rows(layer.outputs * row_bytes);
  for (uint8_t& byte : rows) byte = static_cast<uint8_t>(random() & 0x1f);
  const WeightPart part{layer.kind, rows.data(), layer.outputs};
  PackedWeight weight;
  if (plan_weight(&part, 1, layer.depth, layer.packing, &weight) != nullptr) std::abort();
  uint8_t* data = allocate(packed_bytes(weight));
  const PackArgs args{&part, 1, &weight, data};
  for (int64_t tile = 0; tile < pack_tiles(args); ++tile) pack(args, tile, 0);
  weight.data = data;
  return weight;
}

using Kernel = void (*)(const LinearArgs&, int64_t, int);

// Every copy once, tiles claimed from a counter a copy, no barrier between copies (a barrier is the pool's
// cost).
Time pass(Threads& threads, Kernel kernel, const std::vector<LinearArgs>& copies) {
  std::vector<std::atomic<int64_t>> next(copies.size());
  return threads.run([&](int thread) {
    for (size_t i = 0; i < copies.size(); ++i) {
      const int64_t tiles = linear_tiles(copies[i]);
      for (int64_t tile; (tile = next[i].fetch_add(1)) < tiles;) kernel(copies[i], tile, thread);
    }
  });
}

Time probe(Threads& threads, const uint8_t* data, size_t bytes, int count) {
  static std::atomic<int64_t> sink;
  return threads.run([&](int thread) {
    const size_t share = bytes / count / 512 * 512;
    __m512i sums[8] = {};
    for (size_t i = share * thread; i < share * (thread + 1); i += 512) {
      for (int k = 0; k < 8; ++k) sums[k] = _mm512_add_epi64(sums[k], _mm512_load_si512(data + i + 64 * k));
    }
    for (int k = 1; k < 8; ++k) sums[0] = _mm512_add_epi64(sums[0], sums[k]);
    sink += _mm_cvtsi128_si64(_mm512_castsi512_si128(sums[0]));
  });
}

QuantizedRows random_rows(int64_t rows, const PackedWeight& weight, std::vector<float>& x) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  x.resize(rows * weight.depth);
  for (float& value : x) value = normal(random);
  const QuantizedRows q = quantized_view(allocate(quantized_bytes(rows, weight.depth)), rows, weight.depth);
  if (!takes_quantized(weight)) return q;
  const QuantizeArgs args{x.data(), rows, weight.depth, weight.group, q, {}};
  double best = 1;
  for (int i = 0; i < kPasses; ++i) {
    const double start = seconds();
    for (int64_t tile = 0; tile < quantize_tiles(args); ++tile) avx512::quantize(args, tile, 0);
    best = std::min(best, seconds() - start);
  }
  std::printf("  quantize %4ld rows: %.3f us a row, one thread\n", rows, best * 1e6 / rows);
  return q;
}

void measure(Threads& threads, int count, const Layer& layer) {
  const PackedWeight weight = random_weight(layer);
  const size_t bytes = packed_bytes(weight);
  std::printf("%s [%ld x %ld] %.2f MB\n", layer.name, layer.outputs, layer.depth, bytes / 1e6);
  const size_t num_copies = std::max<size_t>(2, kMemoryBytes / bytes);
  const size_t stride = (bytes + 63) / 64 * 64;
  uint8_t* all = allocate(num_copies * stride);
  std::vector<PackedWeight> weights(num_copies, weight);
  for (size_t i = 0; i < num_copies; ++i) {
    std::memcpy(all + i * stride, weight.data, bytes);
    weights[i].data = all + i * stride;
  }
  std::vector<float> x;
  const QuantizedRows q = random_rows(512, weight, x);
  auto* y = reinterpret_cast<float*>(allocate(512 * layer.outputs * 4));
  for (int64_t rows : {1, 2, 4, 8, 16, 32, 64, 512}) {
    const double ops = 2.0 * layer.outputs * layer.depth * rows;
    const size_t used = std::max<size_t>(2, std::min<size_t>(num_copies, kPassOps / ops));
    std::vector<LinearArgs> memory, cache;
    for (size_t i = 0; i < used; ++i) {
      memory.push_back({&weights[i], x.data(), q, {}, nullptr, rows, y});
      cache.push_back({&weights[0], x.data(), q, {}, nullptr, rows, y});
    }
    Time from_memory, from_cache, reading;
    for (int i = 0; i < kPasses; ++i) {
      from_memory.keep_best(pass(threads, avx512::linear, memory));
      from_cache.keep_best(pass(threads, avx512::linear, cache));
      reading.keep_best(probe(threads, all, num_copies * stride, count));
    }
    const double gigabytes = used * bytes / 1e9, gigaops = used * ops / 1e9;
    std::printf("  rows %3ld  memory %5.1f GB/s %4.0f GOP/s (wall %5.1f, %4.0f)", rows,
                gigabytes / from_memory.cpu, gigaops / from_memory.cpu, gigabytes / from_memory.wall,
                gigaops / from_memory.wall);
    std::printf("  cache %5.1f GB/s %4.0f GOP/s", gigabytes / from_cache.cpu, gigaops / from_cache.cpu);
    const double read = num_copies * stride / 1e9;
    std::printf("  probe %5.1f GB/s (wall %5.1f)\n", read / reading.cpu, read / reading.wall);
    std::fflush(stdout);
  }
  std::free(y);
  std::free(all);
  std::free(q.values);
  std::free(const_cast<uint8_t*>(weight.data));
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 2;
  Threads threads(count);
  for (const Layer& layer :
       {Layer{"Q4_1", SourceKind::Q4_1, Packing::kExact, 1536, 576},
        Layer{"Q4_1", SourceKind::Q4_1, Packing::kExact, 576, 1536},
        Layer{"int8", SourceKind::Q4_1, Packing::kChannel, 1536, 576},
        Layer{"int8", SourceKind::Q4_1, Packing::kChannel, 576, 1536},
        Layer{"Q8_0 head", SourceKind::Q8_0, Packing::kExact, 49152, 576}}) {
    measure(threads, count, layer);
  }
}
