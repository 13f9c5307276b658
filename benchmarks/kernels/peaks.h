// What the machine gives right now: bandwidth of reading and the arithmetic of each kind, on the threads of
// the pool. Kernels are compared with these, because a shared machine's figures move by the minute.
#pragma once

#include <array>
#include <cstdint>

#include "memory.h"
#include "threads.h"

namespace paceline::bench {

// Where operands come from. Weights and KV are read from memory once a step; what one kernel hands the next
// stays in the caches.
enum class Source { kMemory, kCache };
// Multiply-adds of int8 into int32 (VNNI), of bfloat16 into float32, of float32.
enum class Arithmetic { kInt8, kBfloat16, kFloat32 };

inline constexpr std::array kSourceNames = {"memory", "cache"};
inline constexpr std::array kArithmeticNames = {"int8", "bfloat16", "float32"};

struct PeakFigures {
  // GB/s: reading 512 MiB in order; reading 512 KiB a thread over and over.
  std::array<double, 2> read;
  // GOP/s with all operands in registers; 0 where the processor has no such instruction.
  std::array<double, 3> arithmetic;
};

class Peaks {
 public:
  explicit Peaks(ThreadPool& pool);
  // Some 35 ms.
  PeakFigures probe() const;

 private:
  double seconds(int64_t num_tiles, TileFunction run, const void* args) const;

  ThreadPool& pool_;
  Memory memory_;
};

}  // namespace paceline::bench
