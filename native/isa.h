// The kernels of one instruction set, chosen at run time.
#pragma once

#include "softmax.h"
#include "threads.h"

namespace paceline {

// Every entry takes the argument struct of its family (linear.h, attention.h, rows.h) as `const void*`.
struct InstructionSet {
  const char* name;
  TileFunction norm;
  TileFunction gated;
  TileFunction quantize;
  TileFunction linear;
  TileFunction rotary_store;
  TileFunction attend;
  const SoftmaxKernels* softmax;
};

// What the kernel of a family becomes in a task.
template <class Args, void (*kernel)(const Args&, int64_t, int)>
void run_tile(const void* args, int64_t tile, int thread) {
  kernel(*static_cast<const Args*>(args), tile, thread);
}

// The instruction set of that name, or nullptr if this processor (or this build) lacks it.
const InstructionSet* find_instruction_set(const char* name);

// The fastest this processor has.
const InstructionSet& best_instruction_set();

}  // namespace paceline
