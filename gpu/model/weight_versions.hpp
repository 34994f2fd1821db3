#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "gpu/device.hpp"
#include "gpu/model/layer.hpp"
#include "gpu/model/parameter_store.hpp"
#include "gpu/model/stage_parameters.hpp"
#include "gpu/model/stash_slots.hpp"
#include "gpu/ops.hpp"

namespace skein::gpu {

/// Older versions of the weights of a stage's blocks, for micro-batches whose forward was before an
/// update and whose backward is behind it. Embedding and head need none: the one's backward reads
/// no weights, the other's is part of its forward. Not thread-safe.
class WeightVersions {
 public:
  /// Memory for `count` versions. The store must outlive it and not move.
  absl::Status allocate(int32_t count, const StageParameters& parameters,
                        const ParameterStore& store, Device& device);
  int64_t bytes() const;

  /// The newest weights are about to change: keeps a copy, if a slot that is held counts on them.
  /// FailedPrecondition if all versions are in use.
  absl::Status keep(Ops& ops, StashSlots& slots);
  /// Where block `b` finds the weights of a version; its gradients are those of the newest.
  const LayerParameters& block(size_t version, size_t b) const { return versions_[version][b]; }

 private:
  const ParameterStore* store_ = nullptr;
  size_t first_ = 0;                                    // The blocks' first parameter.
  int64_t floats_ = 0;                                  // All of theirs, one behind the other.
  NumberType type_ = NumberType::kFloat32;              // As products read weights.
  std::vector<Buffer> buffers_;                         // [versions]
  std::vector<Buffer> rounded_;                         // [versions], or none.
  std::vector<std::vector<LayerParameters>> versions_;  // [versions][blocks]
};

}  // namespace skein::gpu
