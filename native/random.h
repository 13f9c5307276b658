// Random numbers that are a function of their counter: a draw depends on (seed, position) and on nothing
// else.
#pragma once

#include <cstdint>

namespace paceline {

// Uniform in [0, 1), 53 bits: Philox4x32-10 with the seed as key and the position as counter (Salmon et al.
// 2011).
inline double uniform(uint64_t seed, uint64_t position) {
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  uint32_t c0 = static_cast<uint32_t>(position), c1 = static_cast<uint32_t>(position >> 32), c2 = 0, c3 = 0;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * c0, product1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t next0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ key0;
    const uint32_t next2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ key1;
    c1 = static_cast<uint32_t>(product1);
    c3 = static_cast<uint32_t>(product0);
    c0 = next0;
    c2 = next2;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  const uint64_t bits = uint64_t{c0} << 32 | c1;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace paceline
