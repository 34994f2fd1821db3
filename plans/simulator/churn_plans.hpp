#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/elastic/replan.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/planner/measured_request.hpp"
#include "plans/profile/cluster.hpp"
#include "plans/profile/profile.hpp"

namespace skein::plans {

/// Who is there, and on which device of the cluster.
using DeviceOfWorker = std::map<WorkerId, int32_t>;

/// Plans for the members of a simulated run, and what they take. Workers have measured their
/// devices as `cluster` says, and all else is what a coordinator does: `replan`, the planner,
/// `predict_step_us`. What the planner has said for equal members is kept.
class ChurnPlans {
 public:
  /// `profile` and `cluster` are valid, for the job's model, and outlive the object.
  ChurnPlans(JobSpec job, const Profile& profile, const ClusterSpec& cluster);

  /// A question to `replan` and `quick_replan`. `workers` is not empty.
  ReplanRequest request(const DeviceOfWorker& workers) const;
  /// As `replan` of a request that is not urgent.
  absl::StatusOr<Plan> best(const ReplanRequest& request, const DeviceOfWorker& workers);
  /// As many whole pipelines of `stages` stages as there are workers for, the rest idle; of the
  /// micro-batches that the planner would try the fastest ones. State stays where it is, as for
  /// layouts. Source: the pipeline templates of Oobleck, SOSP'23, and Varuna, EuroSys'22.
  /// Differs: templates have one number of stages.
  /// Unavailable   if there are too few workers for one.
  absl::StatusOr<Plan> whole_pipelines(const ReplanRequest& request, int64_t stages) const;
  /// Seconds of a step of `plan`.
  absl::StatusOr<double> step_seconds(const Plan& plan, const DeviceOfWorker& workers) const;
  /// When each worker is busy with which action or update, in seconds from the start of a step.
  struct Slot {
    WorkerId worker;
    double start_s = 0;
    double end_s = 0;
  };
  absl::StatusOr<std::vector<Slot>> slots(const Plan& plan, const DeviceOfWorker& workers) const;
  std::vector<MeasuredWorker> measured(const DeviceOfWorker& workers) const;

  /// Samples per second if every device computed all the time.
  double capacity(const DeviceOfWorker& workers) const;
  /// From one worker to another one.
  double transfer_seconds(int64_t bytes, int32_t from_device, int32_t to_device) const;
  /// From storage that all machines reach by their network.
  double load_seconds(int64_t bytes, int32_t device) const;
  /// Weights and optimizer state, which travel with a layer.
  int64_t state_bytes(int64_t layer) const;
  const JobSpec& job() const { return job_; }

 private:
  /// Equal for members between which the planner makes no difference, in the order of the ids.
  std::string likeness(const DeviceOfWorker& workers) const;

  JobSpec job_;
  const Profile& profile_;
  const ClusterSpec& cluster_;
  std::map<std::string, absl::StatusOr<Plan>> made_;  // Their workers are 1, 2, ...
};

}  // namespace skein::plans
