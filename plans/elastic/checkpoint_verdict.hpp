#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace skein::plans {

/// What the coordinator's host has found when it read the checkpoint to go on from.
struct CheckpointVerdict {
  absl::Status status;      // The data cannot be read, or a checkpoint is not this job's.
  absl::Status checkpoint;  // DataLoss: none is whole, with what is wrong with the newest one.
  uint64_t step = 0;        // Steps of the newest one that is whole; 0: the initial weights.
  std::vector<std::string> faults;  // A line for each newer one, with file and tensor.
};

}  // namespace skein::plans
