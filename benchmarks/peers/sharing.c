// Whether others use this machine's cores. A virtual machine's CPU is often one hardware thread of a core, and what
// somebody else runs on the other takes up to half of what throughput-bound code gets; no steal time shows it.
//
//     cc -O3 -pthread sharing.c -o sharing && ./sharing    # answers every line it reads by a line of JSON
//
// A thread pinned to each CPU wakes ten times a second, times four slices of a loop of independent adds (10 us in
// all, and 30 us of waking up) and keeps the fastest: an interrupt, or another process of this machine, slows the
// slice that it comes into, a shared core all four. A sample below 0.8 of the best rate that any CPU has shown
// since the start counts as shared: the cores are taken to be alike, so that one which is shared from the start is
// seen by the others, and the clock to move by less. Where a core's both hardware threads are CPUs of this machine,
// its own work counts too.
//
// An answer covers what came since the answer before it: `shared_cores`, each CPU's share of samples that were shared
// (null: it has none); `samples` of each; `best_adds_per_ns` since the start, as only another run's shows when all
// cores are shared all the time; `priority`, since an ordinary one makes samples wait for threads that compute.
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { SECOND_NS = 1000000000, PERIOD_NS = SECOND_NS / 10, NUM_SLICES = 4, NUM_ITERATIONS = 4000, NUM_COUNTERS = 8 };
enum { MAX_SAMPLES = 36000 };  // An hour; run.py ends a turn after a quarter of that.
static const float SHARED_BELOW = 0.8F;

struct Watch {
  float *adds_per_ns;  // Written by the CPU's thread only, up to num_samples.
  atomic_size_t num_samples;
  size_t num_answered;  // Main thread only.
};

static int64_t now_ns(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (int64_t)at.tv_sec * SECOND_NS + at.tv_nsec;
}

static float time_slice(void) {
  uint64_t a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
  const int64_t begin_ns = now_ns();
  for (int i = 0; i < NUM_ITERATIONS; i++) {
    a++, b++, c++, d++, e++, f++, g++, h++;
    // No instruction, but all must be in registers here: the compiler can neither fold nor vectorize.
    __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f), "+r"(g), "+r"(h));
  }
  return (float)(NUM_ITERATIONS * NUM_COUNTERS) / (float)(now_ns() - begin_ns);
}

static void *run(void *argument) {
  struct Watch *watch = argument;
  for (size_t i = 0; i < MAX_SAMPLES; i++) {
    // On a grid of time, all CPUs at once: threads that wait for each other lose one pause and not two.
    const int64_t next_ns = (now_ns() / PERIOD_NS + 1) * PERIOD_NS;
    const struct timespec next = {next_ns / SECOND_NS, next_ns % SECOND_NS};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    for (int slice = 0; slice < NUM_SLICES; slice++) {
      const float rate = time_slice();
      if (rate > watch->adds_per_ns[i]) watch->adds_per_ns[i] = rate;
    }
    atomic_store(&watch->num_samples, i + 1);
  }
  return NULL;
}

// What a thread started from now on runs at.
static const char *raise_priority(void) {
  const struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_FIFO)};
  if (sched_setscheduler(0, SCHED_FIFO, &lowest) == 0) return "fifo";
  return setpriority(PRIO_PROCESS, 0, -20) == 0 ? "nice -20" : "ordinary";
}

static int fail(const char *what, int error) {
  fprintf(stderr, "error: %s: %s\n", what, strerror(error));
  return 1;
}

static int start(struct Watch *watch, int cpu) {
  pthread_t thread;
  pthread_attr_t attributes;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(cpu, &only);
  watch->adds_per_ns = calloc(MAX_SAMPLES, sizeof *watch->adds_per_ns);
  if (!watch->adds_per_ns) return ENOMEM;
  pthread_attr_init(&attributes);
  pthread_attr_setaffinity_np(&attributes, sizeof only, &only);
  const int error = pthread_create(&thread, &attributes, run, watch);
  pthread_attr_destroy(&attributes);
  return error;
}

// NaN: no sample.
static double shared_of(const struct Watch *watch, size_t end, float best) {
  size_t num_shared = 0;
  for (size_t i = watch->num_answered; i < end; i++) num_shared += watch->adds_per_ns[i] < SHARED_BELOW * best;
  return (double)num_shared / (double)(end - watch->num_answered);
}

static void answer(struct Watch *watches, int num_cpus, const char *priority) {
  float best = 0;
  size_t ends[CPU_SETSIZE];
  for (int cpu = 0; cpu < num_cpus; cpu++) {
    ends[cpu] = atomic_load(&watches[cpu].num_samples);
    for (size_t i = 0; i < ends[cpu]; i++)
      if (watches[cpu].adds_per_ns[i] > best) best = watches[cpu].adds_per_ns[i];
  }
  printf("{\"shared_cores\": [");
  for (int cpu = 0; cpu < num_cpus; cpu++) {
    const double shared = shared_of(&watches[cpu], ends[cpu], best);
    if (cpu) printf(", ");
    isnan(shared) ? printf("null") : printf("%.4f", shared);
  }
  printf("], \"samples\": [");
  for (int cpu = 0; cpu < num_cpus; cpu++) {
    printf("%s%zu", cpu ? ", " : "", ends[cpu] - watches[cpu].num_answered);
    watches[cpu].num_answered = ends[cpu];
  }
  printf("], \"best_adds_per_ns\": %.2f, \"priority\": \"%s\"}\n", (double)best, priority);
  fflush(stdout);
}

int main(void) {
  static struct Watch watches[CPU_SETSIZE];
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed)) return fail("the CPUs to watch", errno);
  const char *priority = raise_priority();
  int num_cpus = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const int error = start(&watches[num_cpus++], cpu);
    if (error) return fail("a thread for each CPU", error);
  }
  for (int byte = getchar(); byte != EOF; byte = getchar())
    if (byte == '\n') answer(watches, num_cpus, priority);
  return 0;
}
