// Memory for things that stay as long as the arena does, side by side in a few large mappings.
//
// A linear streams its weight, and most weights of a small model are below a huge page's 2 MiB: mapped one by
// one they would lie in small pages, whose addresses the processor looks up again and again.
#pragma once

#include <algorithm>
#include <mutex>
#include <vector>

#include "memory.h"

namespace paceline {

class Arena {
 public:
  // 64-byte aligned, zeroed when first touched. From any thread.
  std::byte* take(size_t bytes) {
    std::lock_guard lock(mutex_);
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (chunks_.empty() || chunks_.back().bytes() - used_ < bytes) {
      chunks_.emplace_back(std::max(bytes, kChunk));
      used_ = 0;
    }
    std::byte* taken = chunks_.back().as<std::byte>() + used_;
    used_ += bytes;
    return taken;
  }

 private:
  static constexpr size_t kAlignment = 64;
  static constexpr size_t kChunk = size_t{64} << 20;  // what stays untouched costs nothing
  std::mutex mutex_;
  std::vector<Memory> chunks_;
  size_t used_ = 0;  // of the last chunk
};

}  // namespace paceline
