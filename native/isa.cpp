#include "isa.h"

#include <cstring>

#include "attention.h"
#include "linear.h"
#include "rows.h"

namespace paceline {
namespace {

#define PACELINE_KERNELS(set)                    \
  {#set,                                         \
   run_tile<NormArgs, set::norm>,                \
   run_tile<GatedArgs, set::gated>,              \
   run_tile<QuantizeArgs, set::quantize>,        \
   run_tile<LinearArgs, set::linear>,            \
   run_tile<RotaryStoreArgs, set::rotary_store>, \
   run_tile<AttendArgs, set::attend>,            \
   &set::softmax}

const InstructionSet kPortable = PACELINE_KERNELS(portable);

#if defined(__x86_64__)
const InstructionSet kAvx512 = PACELINE_KERNELS(avx512);

// Includes that the system saves the registers. These are the sets the *_avx512.cpp files are compiled for.
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16") &&
         __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
#endif

}  // namespace

const InstructionSet& best_instruction_set() {
#if defined(__x86_64__)
  if (has_avx512()) return kAvx512;
#endif
  return kPortable;
}

const InstructionSet* find_instruction_set(const char* name) {
  if (std::strcmp(name, kPortable.name) == 0) return &kPortable;
  const InstructionSet& best = best_instruction_set();
  return std::strcmp(name, best.name) == 0 ? &best : nullptr;
}

}  // namespace paceline
