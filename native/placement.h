// Which tensors of a program may share memory: those that are never needed at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace paceline {

// Written by operation `first`, last read by operation `last`.
struct Lifetime {
  size_t bytes;
  int64_t first;
  int64_t last;
};

struct Placement {
  std::vector<size_t> offsets;  // of each tensor, multiples of 64
  size_t bytes;                 // in all
};

// Tensors come in the order of their writing. A tensor takes the smallest free slot it fits, or the largest
// one made larger; a slot is free after the last read of its tensor. Tensors alive at one operation never
// overlap.
Placement place(const std::vector<Lifetime>& tensors);

}  // namespace paceline
