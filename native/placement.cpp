#include "placement.h"

#include <algorithm>

namespace paceline {
namespace {

struct Slot {
  size_t bytes;
  int64_t busy_until;  // operation
};

// The slot to give to a tensor of `bytes` at operation `first`, or the number of slots.
size_t choose_slot(const std::vector<Slot>& slots, size_t bytes, int64_t first) {
  size_t chosen = slots.size();
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].busy_until >= first) continue;
    if (chosen == slots.size()) {
      chosen = i;
      continue;
    }
    const size_t current = slots[chosen].bytes, other = slots[i].bytes;
    const bool better = current < bytes ? other > current : other >= bytes && other < current;
    if (better) chosen = i;
  }
  return chosen;
}

}  // namespace

Placement place(const std::vector<Lifetime>& tensors) {
  std::vector<Slot> slots;
  std::vector<size_t> slot_of;
  for (const Lifetime& tensor : tensors) {
    const size_t bytes = (tensor.bytes + 63) / 64 * 64;
    const size_t chosen = choose_slot(slots, bytes, tensor.first);
    if (chosen == slots.size()) slots.push_back({bytes, -1});
    slots[chosen] = {std::max(slots[chosen].bytes, bytes), std::max(tensor.last, tensor.first)};
    slot_of.push_back(chosen);
  }
  std::vector<size_t> starts;
  size_t end = 0;
  for (const Slot& slot : slots) {
    starts.push_back(end);
    end += slot.bytes;
  }
  Placement placement{{}, end};
  for (size_t slot : slot_of) placement.offsets.push_back(starts[slot]);
  return placement;
}

}  // namespace paceline
