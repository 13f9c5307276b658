#include "threads.h"

namespace paceline {
namespace {

constexpr uint64_t kClaims = 0xffffffffu;
// A ticket with as many claims has no tile left; from kEnded on the whole list is done. The counts between
// leave room for threads that ask in vain.
constexpr uint64_t kExhausted = uint64_t{1} << 30;
constexpr uint64_t kEnded = uint64_t{1} << 31;
// About 15 microseconds: longer than the barriers of a decode step, shorter than a time slice is worth.
constexpr int kSpins = 1000;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

uint64_t task_number(uint64_t ticket) { return ticket >> 32; }

uint64_t next_ticket(uint64_t ticket, uint64_t claims) { return (task_number(ticket) + 1) << 32 | claims; }

}  // namespace

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads), ticket_(kEnded) {
  for (int thread = 1; thread < num_threads; ++thread)
    workers_.emplace_back([this, thread] { serve(thread); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  ticket_.store(next_ticket(ticket_.load(), kEnded));
  wakeups_.fetch_add(1);
  wakeups_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(const Task* tasks, int64_t num_tasks) {
  std::lock_guard lock(run_mutex_);
  if (num_threads_ == 1) {
    for (const Task* task = tasks; task < tasks + num_tasks; ++task)
      for (int64_t tile = 0; tile < task->num_tiles; ++tile) task->run(task->args, tile, 0);
    return;
  }
  end_ = tasks + num_tasks;
  begin(tasks, 0);
  work(0);
}

void ThreadPool::serve(int thread) {
  while (!stopping_.load()) {
    const uint64_t seen = ticket_.load(std::memory_order_acquire);
    if ((seen & kClaims) >= kEnded)
      wait_past(seen);
    else
      work(thread);
  }
}

// Claims tiles until the list is done.
void ThreadPool::work(int thread) {
  for (;;) {
    const uint64_t ticket = ticket_.fetch_add(1, std::memory_order_acq_rel);
    const uint64_t claims = ticket & kClaims;
    if (claims < kExhausted) {
      const Task& task = *task_;
      const int64_t tile = static_cast<int64_t>(claims) + task.num_tiles - static_cast<int64_t>(kExhausted);
      task.run(task.args, tile, thread);
      if (tiles_left_.fetch_sub(1, std::memory_order_acq_rel) == 1) begin(task_ + 1, thread);
    } else if (claims >= kEnded) {
      return;
    } else {
      wait_past(ticket);
    }
  }
}

// Goes on with `task` when all before it are done. A task of one tile is run here and now, which saves two
// conversations between cores; the first larger one is published.
void ThreadPool::begin(const Task* task, int thread) {
  for (; task < end_ && task->num_tiles <= 1; ++task)
    if (task->num_tiles == 1) task->run(task->args, 0, thread);
  task_ = task;
  uint64_t claims = kEnded;
  if (task < end_) {
    tiles_left_.store(task->num_tiles, std::memory_order_relaxed);
    claims = kExhausted - static_cast<uint64_t>(task->num_tiles);
  }
  ticket_.store(next_ticket(ticket_.load(std::memory_order_relaxed), claims), std::memory_order_release);
  wakeups_.fetch_add(1);
  wakeups_.notify_all();
}

// Returns once there is another task than that of `ticket`, or the list has ended.
void ThreadPool::wait_past(uint64_t ticket) {
  for (int spins = 0;; ++spins) {
    const uint32_t wakeups = wakeups_.load();
    if (task_number(ticket_.load(std::memory_order_acquire)) != task_number(ticket)) return;
    if (spins < kSpins)
      pause();
    else
      wakeups_.wait(wakeups);
  }
}

}  // namespace paceline
