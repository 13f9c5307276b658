// How should compute threads wait? Steps of many short tasks beside a process that streams to clients.
//
// Prints the time of a step (a fixed amount of work) relative to one quiet thread's share, for each barrier,
// tile assignment, task length and company. The thread pool's waiting policy rests on this table.
//   cd benchmarks/kernels && make contention && ../../build/kernels/contention
#include <immintrin.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

enum class Wait { kSpin, kYield, kPark };
enum class Tiles { kStatic, kStolen };

// Work that depends on itself, so that its length is a count and not a time.
void burn(int64_t iterations) {
  double x = 1.0;
  for (int64_t i = 0; i < iterations; ++i) {
    x = x * 0.999999 + 1e-6;
    asm volatile("" : "+x"(x));
  }
}

constexpr uint64_t kTilesPerTask = 16;
constexpr int kSpins = 1000;

// Static: thread t computes tiles t, t + threads, ... and all threads must arrive. Stolen: tiles are claimed
// one by one and all tiles must be done, whoever did them, so that a thread that is away is not missed.
struct Pool {
  Wait wait;
  Tiles tiles;
  int num_threads;
  uint32_t num_tasks;
  int64_t iterations_per_tile;
  alignas(64) std::atomic<uint64_t> ticket{
      0};  // task << 32 | next tile; one word, so that a claim is of this task
  alignas(64) std::atomic<uint32_t> done{0};  // tiles, or threads if static
  alignas(64) std::atomic<uint32_t> wakeups{0};
  std::atomic<uint32_t> sleepers{0};

  static uint32_t task_of(uint64_t t) { return uint32_t(t >> 32); }

  void wait_for_change(uint32_t seen) {
    for (int i = 0;; ++i) {
      uint32_t wakeup = wakeups.load();
      if (task_of(ticket.load()) != seen) return;
      if (wait == Wait::kSpin || i < kSpins) {
        _mm_pause();
      } else if (wait == Wait::kYield) {
        sched_yield();
      } else {
        sleepers.fetch_add(1);
        if (task_of(ticket.load()) == seen)
          syscall(SYS_futex, &wakeups, FUTEX_WAIT_PRIVATE, wakeup, nullptr, nullptr, 0);
        sleepers.fetch_sub(1);
      }
    }
  }

  void finished(uint32_t current, uint32_t needed) {
    if (done.fetch_add(1) + 1 != needed) return;
    done.store(0);
    ticket.store(uint64_t(current + 1) << 32);
    if (sleepers.load() == 0) return;
    wakeups.fetch_add(1);
    syscall(SYS_futex, &wakeups, FUTEX_WAKE_PRIVATE, 1 << 20, nullptr, nullptr, 0);
  }

  void work(int thread) {
    uint32_t current;
    while ((current = task_of(ticket.load())) < num_tasks) {
      if (tiles == Tiles::kStatic) {
        for (uint64_t t = thread; t < kTilesPerTask; t += num_threads) burn(iterations_per_tile);
        finished(current, num_threads);
        wait_for_change(current);
        continue;
      }
      uint64_t claimed = ticket.fetch_add(1);
      if ((claimed & 0xffffffffu) >= kTilesPerTask) {
        wait_for_change(task_of(claimed));
      } else if (task_of(claimed) < num_tasks) {
        burn(iterations_per_tile);
        finished(task_of(claimed), kTilesPerTask);
      }
    }
  }
};

double step_seconds(Wait wait, Tiles tiles, int num_threads, int64_t iterations, uint32_t num_tasks) {
  Pool pool{wait, tiles, num_threads, num_tasks, iterations};
  std::vector<std::thread> helpers;
  auto start = Clock::now();
  for (int t = 1; t < num_threads; ++t) helpers.emplace_back([&pool, t] { pool.work(t); });
  pool.work(0);
  double elapsed = seconds_since(start);
  for (auto& helper : helpers) helper.join();
  return elapsed;
}

// The company: 64 streams of 25 events a second over a socket to a reader, with `event_us` of CPU spent on
// each event.
pid_t start_streamer(double event_us, double iterations_per_us) {
  pid_t pid = fork();
  if (pid != 0) return pid;
  int ends[2];
  socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
  std::thread([fd = ends[1]] {
    char buffer[4096];
    while (read(fd, buffer, sizeof buffer) > 0) {
    }
  }).detach();
  char event[200] = {};
  for (auto next = Clock::now();; next += std::chrono::milliseconds(40)) {
    std::this_thread::sleep_until(next);
    for (int stream = 0; stream < 64; ++stream) {
      burn(int64_t(event_us * iterations_per_us));
      if (write(ends[0], event, sizeof event) < 0) _exit(1);
    }
  }
}

pid_t start_busy_script() {
  pid_t pid = fork();
  if (pid != 0) return pid;
  for (;;) burn(1000000);
}

}  // namespace

int main() {
  double best = 1e9;
  for (int i = 0; i < 20; ++i) {
    auto start = Clock::now();
    burn(1000000);
    best = std::min(best, seconds_since(start));
  }
  double per_us = 1000000 / (best * 1e6);
  std::printf("barrier tiles  threads  task_us  company       step/ideal: best median worst\n");
  for (int company = 0; company < 4; ++company) {
    const char* names[] = {"quiet", "stream", "stream+json", "busy script"};
    pid_t child = 0;
    if (company == 1) child = start_streamer(0, per_us);
    if (company == 2) child = start_streamer(150, per_us);
    if (company == 3) child = start_busy_script();
    for (double task_us : {30.0, 300.0})
      for (int threads : {2, 1})
        for (Tiles tiles : {Tiles::kStatic, Tiles::kStolen})
          for (Wait wait : {Wait::kSpin, Wait::kYield, Wait::kPark}) {
            if (threads == 1 && (wait != Wait::kSpin || tiles != Tiles::kStatic)) continue;
            uint32_t tasks = uint32_t(30000 / task_us);  // a step of 30 ms on two threads
            int64_t iterations = int64_t(task_us * per_us * 2 / kTilesPerTask);
            std::vector<double> ratios;
            for (int i = 0; i < 7; ++i)
              ratios.push_back(step_seconds(wait, tiles, threads, iterations, tasks) / 30e-3);
            std::sort(ratios.begin(), ratios.end());
            const char* waits[] = {"spin", "yield", "park"};
            std::printf("%-7s %-7s %d  %6.0f  %-12s  %6.2f %6.2f %6.2f\n", waits[int(wait)],
                        tiles == Tiles::kStatic ? "static" : "stolen", threads, task_us, names[company],
                        ratios[0], ratios[3], ratios[6]);
          }
    if (child > 0) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }
}
