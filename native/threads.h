// The thread pool: runs lists of tasks, each a number of tiles, with a barrier after each task.
//
// Each thread has a run of neighbouring tiles, which it claims one by one in order, so that what it reads
// goes forwards in memory and its counter stays in its own cache; when its run is used up it claims from the
// others'. A task ends when its tiles are done, whoever did them. So a thread that the system took off its
// core costs at most the tile it holds: the others go on without it. A thread with
// nothing to claim spins a few microseconds, then parks, which frees its core for whoever holds the last tile
// (benchmarks/kernels/contention.cpp measures the alternatives).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace paceline {

// `thread` is in [0, num_threads) and no two tiles running at once have the same: it indexes scratch.
using TileFunction = void (*)(const void* args, int64_t tile, int thread);

struct Task {
  int64_t num_tiles;  // below 2^30
  TileFunction run;
  const void* args;
};

class ThreadPool {
 public:
  // The caller of `run` is thread 0; num_threads - 1 more are started.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Runs the tasks in order; what a task wrote is seen by all tiles of the next. Returns when all are done.
  // Callers from several threads take turns.
  void run(const Task* tasks, int64_t num_tasks);

 private:
  void serve(int thread);
  void work(int thread);
  int64_t claim_all(int thread);
  void count(int64_t done, int thread);
  bool begin(const Task* task, int thread);
  void publish(const Task* task);
  void wait_past(int thread, uint64_t ticket);
  int64_t first_tile(int64_t num_tiles, int run) const { return num_tiles * run / num_threads_; }

  const int num_threads_;
  std::mutex run_mutex_;
  std::vector<std::thread> workers_;

  const Task* end_ = nullptr;  // of the list; written while no tile is claimed
  std::atomic<bool> stopping_{false};

  // One a thread, of its run of tiles. All that a thread must know of a new task lies in the line it watches:
  // between chips each further one costs a quarter of a microsecond.
  struct alignas(64) Ticket {
    // Bits 32..63: number of the task (it only grows). Bits 0..31: tiles claimed, counted up to kExhausted.
    // One word, so that a claim can't be of another task than the thread thinks.
    std::atomic<uint64_t> value;
    // Written only while no tile is claimed, read only by holders of one.
    const Task* task;
    int64_t end;  // of the run
  };
  std::unique_ptr<Ticket[]> tickets_;
  // Not yet done, and one for whoever publishes.
  alignas(64) std::atomic<int64_t> tiles_left_{0};
  // Threads that sleep until wakeups_ moves, or are about to.
  alignas(64) std::atomic<uint32_t> num_parked_{0};
  std::atomic<uint32_t> wakeups_{0};
};

}  // namespace paceline
