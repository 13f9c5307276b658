// Memory for the weights of a model, one behind the other. Most are smaller than a huge page, and a matrix in
// small ones is read at two thirds of the bandwidth: prefetching stops at the end of each page.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>

#include "memory.h"

namespace paceline {

class Arena {
 public:
  // Zeroed, 64-byte aligned. The pieces of a chunk keep it: memory goes back when the last of them does, and
  // what is left of a chunk is never touched and costs nothing. Callers from several threads take turns.
  std::shared_ptr<uint8_t> take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const size_t rounded = (bytes + 63) / 64 * 64;
    if (chunk_ == nullptr || used_ + rounded > chunk_->bytes()) {
      chunk_ = std::make_shared<Memory>(std::max(rounded, kChunkBytes));
      used_ = 0;
    }
    uint8_t* piece = chunk_->as<uint8_t>() + used_;
    used_ += rounded;
    return {chunk_, piece};
  }

 private:
  static constexpr size_t kChunkBytes = size_t{64} << 20;
  std::mutex mutex_;
  std::shared_ptr<Memory> chunk_;
  size_t used_ = 0;  // of the last chunk
};

}  // namespace paceline
