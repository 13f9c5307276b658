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

}  // namespace

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads), tickets_(new Ticket[num_threads]) {
  for (int run = 0; run < num_threads; ++run) tickets_[run].value = kEnded;
  for (int thread = 1; thread < num_threads; ++thread)
    workers_.emplace_back([this, thread] { serve(thread); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  publish(nullptr);
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
  if (begin(tasks, 0)) count(1, 0);
  work(0);
}

void ThreadPool::serve(int thread) {
  while (!stopping_.load()) {
    const uint64_t seen = tickets_[thread].value.load(std::memory_order_acquire);
    if ((seen & kClaims) >= kEnded)
      wait_past(thread, seen);
    else
      work(thread);
  }
}

// Works until the list is done.
void ThreadPool::work(int thread) {
  for (;;) {
    const uint64_t seen = tickets_[thread].value.load(std::memory_order_acquire);
    if ((seen & kClaims) >= kEnded) return;
    const int64_t done = claim_all(thread);
    if (done == 0)
      wait_past(thread, seen);
    else
      count(done, thread);
  }
}

// So many more of the task's tiles are done; whoever counts the last goes on with the next task. Having
// published counts as one, so that no task ends while its tickets are still being written.
void ThreadPool::count(int64_t done, int thread) {
  while (tiles_left_.fetch_sub(done, std::memory_order_acq_rel) == done) {
    if (!begin(tickets_[thread].task + 1, thread)) return;
    done = 1;
  }
}

// Runs every tile that is left, the thread's own first; returns how many it ran. They are of one task: it
// can't end before they are counted.
int64_t ThreadPool::claim_all(int thread) {
  int64_t done = 0;
  for (int other = 0; other < num_threads_; ++other) {
    Ticket& ticket = tickets_[(thread + other) % num_threads_];
    for (;; ++done) {
      const uint64_t claims = ticket.value.fetch_add(1, std::memory_order_acq_rel) & kClaims;
      if (claims >= kExhausted) break;
      const auto left = static_cast<int64_t>(kExhausted - claims);
      ticket.task->run(ticket.task->args, ticket.end - left, thread);
    }
  }
  return done;
}

// Goes on with `task` when all before it are done; false if the list has ended. A task of one tile is run
// here and now, which saves two conversations between cores; the first larger one is published.
bool ThreadPool::begin(const Task* task, int thread) {
  const Task* const end = end_;
  for (; task < end && task->num_tiles <= 1; ++task)
    if (task->num_tiles == 1) task->run(task->args, 0, thread);
  publish(task < end ? task : nullptr);
  return task < end;
}

// Offers the tiles of `task`; of nullptr: says that the list has ended. Thread 0, which then may begin
// another list, hears of it last.
void ThreadPool::publish(const Task* task) {
  if (task != nullptr) tiles_left_.store(task->num_tiles + 1, std::memory_order_relaxed);
  for (int run = num_threads_ - 1; run >= 0; --run) {
    Ticket& ticket = tickets_[run];
    uint64_t claims = kEnded;
    if (task != nullptr) {
      ticket.task = task;
      ticket.end = first_tile(task->num_tiles, run + 1);
      claims = kExhausted - static_cast<uint64_t>(ticket.end - first_tile(task->num_tiles, run));
    }
    const uint64_t number = task_number(ticket.value.load(std::memory_order_relaxed)) + 1;
    ticket.value.store(number << 32 | claims, std::memory_order_release);
  }
  // Either this sees the thread that parks, or that thread sees its new ticket.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (num_parked_.load(std::memory_order_relaxed) == 0) return;
  wakeups_.fetch_add(1);
  wakeups_.notify_all();
}

// Returns once there is another task than that of `ticket`, or the list has ended.
void ThreadPool::wait_past(int thread, uint64_t ticket) {
  const auto is_past = [&] {
    return task_number(tickets_[thread].value.load(std::memory_order_acquire)) != task_number(ticket);
  };
  for (int spins = 0; spins < kSpins; ++spins) {
    if (is_past()) return;
    pause();
  }
  num_parked_.fetch_add(1);
  for (;;) {
    const uint32_t wakeups = wakeups_.load();
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (is_past()) break;
    wakeups_.wait(wakeups);
  }
  num_parked_.fetch_sub(1);
}

}  // namespace paceline
