// What a backend holds of a model: packed weights and float32 vectors, with the memory they live in.
#pragma once

#include <memory>
#include <vector>

#include "arena.h"
#include "pack.h"
#include "threads.h"

namespace paceline {

struct Weight {
  PackedWeight packed;
  std::shared_ptr<Arena> arena;  // that packed.data lies in
};

struct Vector {
  std::vector<float> values;
};

// `depth` is the columns of every part. The parts are only read during the call. Throws std::invalid_argument
// if no layout of this packing holds all parts.
std::shared_ptr<const Weight> make_weight(const std::vector<WeightPart>& parts, int64_t depth,
                                          Packing packing, ThreadPool& pool, std::shared_ptr<Arena> arena);

// The values of the first row of `part`.
std::shared_ptr<const Vector> make_vector(const WeightPart& part, int64_t depth, ThreadPool& pool);

}  // namespace paceline
