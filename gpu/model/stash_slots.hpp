#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/device.hpp"

namespace skein::gpu {

/// What one micro-batch keeps from its forward to its backward: inputs of all blocks and the last
/// output, the blocks' stashes, and the gradient that the head leaves.
struct StashSlot {
  Buffer memory;
  Buffer statistics;
  Buffer pending;  // Shared by all blocks; allocated once I and W are run apart.
  std::vector<int32_t> tokens;
  bool input_done = false;
  std::optional<size_t> old_version;  // Weights that its forward had; none: the newest.
};

/// The slots of a stage, as many as its schedule has micro-batches under way. Not thread-safe;
/// pointers stay as long as the object, which must not move once one is taken.
class StashSlots {
 public:
  absl::Status allocate(int32_t count, int64_t bytes, int64_t statistics_bytes, Device& device);

  /// A slot for `microbatch`, whose contents are those of an earlier one. FailedPrecondition if it
  /// holds one or none is free.
  absl::StatusOr<StashSlot*> take(int32_t microbatch);
  /// FailedPrecondition if `microbatch` holds none.
  absl::StatusOr<StashSlot*> find(int32_t microbatch);
  /// `microbatch` holds one.
  void release(int32_t microbatch);
  void release_all();
  /// All that are held.
  std::vector<StashSlot*> held() const;

 private:
  std::vector<StashSlot> slots_;
  std::vector<StashSlot*> free_;
  std::map<int32_t, StashSlot*> active_;
};

}  // namespace skein::gpu
