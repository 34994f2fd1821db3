#pragma once

#include <cstdint>
#include <vector>

#include "plans/base/rng.hpp"

namespace skein::net {

/// [ranks][floats] normal values, the same every time.
inline std::vector<std::vector<float>> random_values(uint32_t ranks, size_t floats,
                                                     uint64_t seed = 1) {
  std::vector<std::vector<float>> values(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    for (size_t i = 0; i < floats; ++i) {
      values[rank].push_back(static_cast<float>(plans::random_normal(seed, rank, i)));
    }
  }
  return values;
}

}  // namespace skein::net
