// What the machine gives right now with two threads: memory read in GB/s (median of 5 passes over 512 MiB) and int8
// VNNI multiply-adds in GOP/s (median of 3 runs of some 25 ms). Prints both numbers; 0 for VNNI where there is none.
//
//     cc -O3 -march=native -pthread probe.c -o probe && ./probe
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { NUM_THREADS = 2, NUM_PASSES = 5, NUM_RUNS = 3, NUM_ACCUMULATORS = 8 };
static const size_t NUM_BYTES = (size_t)512 << 20;
static const long NUM_ITERATIONS = 1500000;

struct Task {
  const char *bytes;  // The thread's share of the buffer; NULL: measure arithmetic.
  pthread_barrier_t *start;
  double begin_s, end_s;
  int64_t sink;  // Keeps the compiler from dropping the work.
};

static double now_s(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

#if defined(__AVX512F__)
// By vectors: loops over arrays, as below, are compiled to a third less.
static int64_t read_bytes(const char *bytes, size_t num_bytes) {
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
  for (const char *at = bytes; at < bytes + num_bytes; at += 256) {
    a = _mm512_add_epi64(a, _mm512_load_si512(at));
    b = _mm512_add_epi64(b, _mm512_load_si512(at + 64));
    c = _mm512_add_epi64(c, _mm512_load_si512(at + 128));
    d = _mm512_add_epi64(d, _mm512_load_si512(at + 192));
  }
  return _mm512_reduce_add_epi64(_mm512_add_epi64(_mm512_add_epi64(a, b), _mm512_add_epi64(c, d)));
}
#else
static int64_t read_bytes(const char *bytes, size_t num_bytes) {
  const uint64_t *words = (const uint64_t *)bytes;
  uint64_t sums[32] = {0};
  for (size_t i = 0; i < num_bytes / 8; i += 32)
    for (int lane = 0; lane < 32; lane++) sums[lane] += words[i + lane];
  uint64_t total = 0;
  for (int lane = 0; lane < 32; lane++) total += sums[lane];
  return (int64_t)total;
}
#endif

#if defined(__AVX512VNNI__)
static const double OPS_PER_ITERATION = NUM_ACCUMULATORS * 64 * 2.0;

static int64_t multiply_add(void) {
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a, e = a, f = a, g = a, h = a;
  const __m512i three = _mm512_set1_epi8(3);
  // Assembly, because a compiler may fold a loop over constants.
  for (long i = 0; i < NUM_ITERATIONS; i++)
    __asm__ volatile(
        "vpdpbusd %8, %8, %0\n vpdpbusd %8, %8, %1\n vpdpbusd %8, %8, %2\n vpdpbusd %8, %8, %3\n"
        "vpdpbusd %8, %8, %4\n vpdpbusd %8, %8, %5\n vpdpbusd %8, %8, %6\n vpdpbusd %8, %8, %7\n"
        : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h)
        : "v"(three));
  return _mm512_reduce_add_epi32(a) + _mm512_reduce_add_epi32(h);
}
#else
static const double OPS_PER_ITERATION = 0;
static int64_t multiply_add(void) { return 0; }
#endif

static void *run(void *argument) {
  struct Task *task = argument;
  pthread_barrier_wait(task->start);
  task->begin_s = now_s();
  task->sink += task->bytes ? read_bytes(task->bytes, NUM_BYTES / NUM_THREADS) : multiply_add();
  task->end_s = now_s();
  return NULL;
}

// Seconds from the first thread's start to the last one's end.
static double run_all(const char *bytes) {
  pthread_t threads[NUM_THREADS];
  struct Task tasks[NUM_THREADS];
  pthread_barrier_t start;
  pthread_barrier_init(&start, NULL, NUM_THREADS);
  for (int i = 0; i < NUM_THREADS; i++) {
    tasks[i] = (struct Task){bytes ? bytes + (size_t)i * (NUM_BYTES / NUM_THREADS) : NULL, &start, 0, 0, 0};
    pthread_create(&threads[i], NULL, run, &tasks[i]);
  }
  double begin_s = 1e300, end_s = 0;
  for (int i = 0; i < NUM_THREADS; i++) {
    pthread_join(threads[i], NULL);
    if (tasks[i].begin_s < begin_s) begin_s = tasks[i].begin_s;
    if (tasks[i].end_s > end_s) end_s = tasks[i].end_s;
  }
  pthread_barrier_destroy(&start);
  return end_s - begin_s;
}

static int compare(const void *left, const void *right) {
  const double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static double median_s(const char *bytes, int num) {
  double seconds[NUM_PASSES];
  for (int i = 0; i < num; i++) seconds[i] = run_all(bytes);
  qsort(seconds, (size_t)num, sizeof(double), compare);
  return seconds[num / 2];
}

int main(void) {
  char *bytes = mmap(NULL, NUM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED) {
    perror("512 MiB to read from");
    return 1;
  }
  madvise(bytes, NUM_BYTES, MADV_HUGEPAGE);
  memset(bytes, 1, NUM_BYTES);
  const double read_gb_s = 1e-9 * (double)NUM_BYTES / median_s(bytes, NUM_PASSES);
  const double vnni_gop_s = 1e-9 * NUM_THREADS * (double)NUM_ITERATIONS * OPS_PER_ITERATION / median_s(NULL, NUM_RUNS);
  printf("%.1f %.0f\n", read_gb_s, vnni_gop_s);
  return 0;
}
