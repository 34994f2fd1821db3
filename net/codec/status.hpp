#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plans/base/ids.hpp"

namespace skein::net {

/// Viewer -> coordinator.
struct StatusRequest {
  bool operator==(const StatusRequest&) const = default;
};

struct WorkerStatus {
  plans::WorkerId worker;
  std::string host_name;
  uint32_t process_id = 0;
  std::string device;
  uint64_t steps_done = 0;
  uint64_t heartbeat_age_ms = 0;
  std::vector<std::string> replicas;  // "stage 0 layers 0..3 rows 0..8"; kHostedMax.
  bool operator==(const WorkerStatus&) const = default;
};

/// Coordinator -> viewer.
struct Status {
  std::string job;
  std::string state;  // "waiting for workers", "training"
  uint64_t steps_done = 0;
  uint64_t steps_total = 0;
  double loss = 0;  // Not finite if the training has diverged.
  double tokens_per_second = 0;
  uint64_t generation = 0;
  uint64_t term = 0;
  std::vector<WorkerStatus> workers;  // kPeersMax.
  std::string run_folder;             // kPathBytesMax.
  bool operator==(const Status&) const = default;
};

}  // namespace skein::net
