#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::bench {

/// An array of bytes of some dimensions, as of MNIST and Fashion-MNIST: two zero bytes, type 8,
/// number of dimensions, each size as 32 bits big-endian, then the values.
struct IdxFile {
  std::vector<uint64_t> sizes;
  std::vector<uint8_t> values;
};

/// NotFound; DataLoss if the magic is another one, or header and size of the file disagree, which
/// is checked before anything is allocated.
absl::StatusOr<IdxFile> read_idx(const std::string& path, uint64_t dimensions);

}  // namespace skein::bench
