#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "gpu/model/stage_model.hpp"

namespace skein::gpu {

/// What a stage takes of its device's memory.
struct MemoryEstimate {
  int64_t state_bytes = 0;    // Weights, also as products read them, gradients and moments.
  int64_t stash_bytes = 0;    // All micro-batches that are kept at once.
  int64_t extra_bytes = 0;    // With recomputation: of the layer that is computed again.
  int64_t version_bytes = 0;  // Older versions of the weights, for micro-batches in flight.
  /// Beside these, which the planner does not count; exact sums of gradients, too.
  int64_t working_bytes = 0;
  /// Where the two halves of a backward run apart: what waits for the second one. It is allocated
  /// when the first such half runs, and not counted in the sums below.
  int64_t split_bytes = 0;
  /// As `plans::plan_memory` counts.
  int64_t planned_bytes() const { return state_bytes + stash_bytes + extra_bytes + version_bytes; }
  int64_t total_bytes() const { return planned_bytes() + working_bytes; }
};
/// On a device of these `DeviceInfo::activations` and `logits`. The model allocates `total_bytes`.
/// A device needs a little more: its allocator rounds up (`rounding_bytes`), and kernels take
/// scratch; tests/gpu/cuda_memory_test.cpp bounds by how much.
MemoryEstimate estimate_memory(const StageModelOptions& options, const DeviceInfo& device);

/// What rounding each block of memory up adds at most to what such a stage allocates, or one of
/// some of its layers. 0 unless the device has memory of its own, which `CachingAllocator` gives
/// out.
int64_t rounding_bytes(const StageModelOptions& options, const DeviceInfo& device);

/// The error with what the plan counts on for the stage, if memory is what was missing.
absl::Status with_estimate(const absl::Status& why, const StageModelOptions& options,
                           const DeviceInfo& device);

}  // namespace skein::gpu
