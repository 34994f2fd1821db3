#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/base/ids.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/planner/planner.hpp"
#include "plans/profile/cluster.hpp"
#include "plans/profile/profile.hpp"

namespace skein::plans {

/// What the runtime itself takes, beside layers and links.
constexpr double kCommitUs = 180;         // measured, bench/schedule.py, 2 virtual cores, Nov 2026
constexpr double kActionOverheadUs = 40;  // A wake of a thread between input and action; the same.

/// What a worker has measured of itself.
struct MeasuredWorker {
  WorkerId id;
  std::string host;
  Profile profile;  // In times of its own device.
  /// Memory of its machine, which the workers there share; or of its device, which those share
  /// whose profiles name the same one. 0: not known.
  int64_t memory_bytes = 0;
  bool is_device_memory = false;
  int64_t memory_bytes_max = 0;         // That it may take of it; 0: all.
  int64_t rounding_bytes = 0;           // What its blocks of memory are rounded up by, at most.
  std::map<WorkerId, LinkSpeed> links;  // To the other workers.
  bool operator==(const MeasuredWorker&) const = default;
};

/// Numbers of rows of a micro-batch at which the layers of `job` are to be measured, ascending.
std::vector<int64_t> rows_to_measure(const JobSpec& job);

/// The cluster that was measured: a host per name, device n - 1 for the n-th worker. The speed of
/// the first worker is 1.0, that of another the ratio of the times for a whole micro-batch. A path
/// has the mean of what both ends measured; where nobody measured, that of the fastest network.
/// What GPUs have is less than their memory by what their groups take (`device_group_bytes`), and
/// what a worker has by what it rounds up, so that every planner and every check leaves room.
ClusterSpec measured_cluster(const JobSpec& job, const std::vector<MeasuredWorker>& workers);

/// What to ask a planner for `job` on these workers: any schedule, any number of micro-batches.
/// `workers` ascending by id, at least one.
PlanRequest measured_request(const JobSpec& job, const std::vector<MeasuredWorker>& workers);

/// In the same order.
std::vector<WorkerId> ids_of(const std::vector<MeasuredWorker>& workers);

}  // namespace skein::plans
