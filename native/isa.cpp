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
const InstructionSet kAvx2 = PACELINE_KERNELS(avx2);

// These include that the system saves the registers. They are what CMakeLists.txt compiles the files of a set
// for.
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16") &&
         __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
#endif

// Calls `visit` with those this processor has, the fastest first, until it says true.
template <class Visit>
const InstructionSet* first_set(Visit visit) {
#if defined(__x86_64__)
  if (has_avx512() && visit(kAvx512)) return &kAvx512;
  if (has_avx2() && visit(kAvx2)) return &kAvx2;
#endif
  return visit(kPortable) ? &kPortable : nullptr;
}

}  // namespace

const InstructionSet& best_instruction_set() {
  return *first_set([](const InstructionSet&) { return true; });
}

const InstructionSet* find_instruction_set(const char* name) {
  return first_set([=](const InstructionSet& set) { return std::strcmp(name, set.name) == 0; });
}

}  // namespace paceline
