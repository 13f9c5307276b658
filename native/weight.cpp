#include "weight.h"

#include <stdexcept>

#include "isa.h"

namespace paceline {

std::shared_ptr<const Weight> make_weight(const std::vector<WeightPart>& parts, int64_t depth,
                                          Packing packing, ThreadPool& pool, std::shared_ptr<Arena> arena) {
  auto weight = std::make_shared<Weight>();
  const int64_t num_parts = static_cast<int64_t>(parts.size());
  const char* problem = plan_weight(parts.data(), num_parts, depth, packing, &weight->packed);
  if (problem != nullptr) throw std::invalid_argument(problem);
  auto* data = reinterpret_cast<uint8_t*>(arena->take(packed_bytes(weight->packed)));
  weight->packed.data = data;
  weight->arena = std::move(arena);
  const PackArgs args{parts.data(), num_parts, &weight->packed, data};
  const Task task{pack_tiles(args), run_tile<PackArgs, pack>, &args};
  pool.run(&task, 1);
  return weight;
}

std::shared_ptr<const Vector> make_vector(const WeightPart& part, int64_t depth, ThreadPool& pool) {
  WeightPart row = part;
  row.num_rows = 1;
  const auto weight = make_weight({row}, depth, Packing::kExact, pool, std::make_shared<Arena>());
  auto vector = std::make_shared<Vector>();
  vector->values.resize(depth);
  unpack_row(weight->packed, 0, vector->values.data());
  return vector;
}

}  // namespace paceline
