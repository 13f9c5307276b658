#include "weight.h"

#include <stdexcept>

#include "isa.h"

namespace paceline {

std::shared_ptr<const Weight> make_weight(const std::vector<WeightPart>& parts, int64_t depth,
                                          Packing packing, const Packer& packer) {
  auto weight = std::make_shared<Weight>();
  const int64_t num_parts = static_cast<int64_t>(parts.size());
  const char* problem = plan_weight(parts.data(), num_parts, depth, packing, &weight->packed);
  if (problem != nullptr) throw std::invalid_argument(problem);
  weight->data = packer.arena.take(packed_bytes(weight->packed));
  weight->packed.data = weight->data.get();
  const PackArgs args{parts.data(), num_parts, &weight->packed, weight->data.get()};
  const Task task{pack_tiles(args), run_tile<PackArgs, pack>, &args};
  packer.pool.run(&task, 1);
  return weight;
}

std::shared_ptr<const Vector> make_vector(const WeightPart& part, int64_t depth, ThreadPool& pool) {
  WeightPart row = part;
  row.num_rows = 1;
  Arena arena;  // not the weights': the packed row is gone when this returns
  const auto weight = make_weight({row}, depth, Packing::kExact, {pool, arena});
  auto vector = std::make_shared<Vector>();
  vector->values.resize(depth);
  unpack_row(weight->packed, 0, vector->values.data());
  return vector;
}

}  // namespace paceline
