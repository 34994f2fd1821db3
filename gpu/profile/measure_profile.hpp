#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/device.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/profile/profile.hpp"

namespace skein::gpu {

/// Measures what each layer of the job's model costs on `device`: one layer of each kind is built,
/// run on random data and timed, the fastest of `repeats` runs counting; blocks are alike and are
/// measured once. Bytes are those that the stage model allocates. Blocks the caller; the device
/// must have no other work.
///
/// `rows`            numbers of rows of a micro-batch to measure at, ascending, each >= 1.
/// Returns           a profile with source "measured", in times of this device as it is.
/// ResourceExhausted if a layer's memory cannot be had; InvalidArgument if `rows` is empty.
absl::StatusOr<plans::Profile> measure_profile(const plans::JobSpec& job, Device& device,
                                               const std::vector<int64_t>& rows, int repeats);

/// What `measure_profile` allocates at once, at most; see `MemoryEstimate`.
int64_t profile_bytes(const plans::JobSpec& job, const Device& device,
                      const std::vector<int64_t>& rows);

/// What a stage with all layers takes beside what a profile counts.
int64_t working_bytes(const plans::JobSpec& job, const Device& device, int64_t rows);

/// What rounding adds at most to the memory of a stage, whichever layers a plan gives it, with
/// micro-batches of at most so many rows; see gpu/model/memory_estimate.hpp. Of stashes it counts
/// as many as any schedule but GPipe's holds, also of smaller micro-batches if the planner chooses.
int64_t rounding_bytes(const plans::JobSpec& job, const Device& device, int64_t rows);

}  // namespace skein::gpu
