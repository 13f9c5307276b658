// For helpers whose arguments are registers: a call would put them into memory.
#pragma once

#define ALWAYS_INLINE static inline __attribute__((always_inline))
