#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/device.hpp"

namespace skein::gpu {

/// Pinned host memory for what crosses between host and device during one work: taken piece by
/// piece, given back as a whole when the work has ended, and kept for the next one. Used by the
/// device's thread only.
class Staging {
 public:
  using Allocate = std::function<absl::StatusOr<Buffer>(int64_t bytes)>;
  explicit Staging(Allocate allocate) : allocate_(std::move(allocate)) {}

  /// Memory aligned to 64 bytes, valid until `reset`. ResourceExhausted.
  absl::StatusOr<void*> take(int64_t bytes);
  void reset();

 private:
  Allocate allocate_;
  std::vector<Buffer> blocks_;
  size_t block_ = 0;  // The one that pieces are taken from.
  int64_t next_ = 0;  // Its first free byte.
};

}  // namespace skein::gpu
