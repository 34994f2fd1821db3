#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/planner/measured_request.hpp"
#include "plans/stragglers/straggler_detector.hpp"
#include "plans/stragglers/straggler_remedy.hpp"

namespace skein::plans {

/// Compares what the workers of a plan take with what the plan expects of them, step by step. Knows
/// that worker ids have gaps, and the planner's devices do not.
class SpeedWatch {
 public:
  /// `plan` is in force; `measured` has what its workers have measured of themselves, in the speeds
  /// known so far, or nothing: the work is then what the layers' FLOPs say.
  void begin_generation(const JobSpec& job, const Plan& plan,
                        const std::vector<MeasuredWorker>& measured);
  /// The reports of a committed step. Ascending by worker.
  std::vector<SpeedChange> on_step(uint64_t step, const std::map<ReplicaId, ReadyReport>& reports);
  /// New speeds are known, and the plan stays.
  void reset(const std::vector<MeasuredWorker>& measured);

 private:
  void expect(const std::vector<MeasuredWorker>& measured);

  JobSpec job_;
  std::optional<Plan> plan_;
  std::map<WorkerId, double> expected_us_;  // Busy time of a step.
  StragglerDetector detector_;
};

/// Divides the speed of a measured worker by `slowdown`.
void slow_down(MeasuredWorker& worker, double slowdown);

/// What to do about `stragglers`: `choose_remedy` for a plan over workers with any ids, all of whom
/// have measured.
absl::StatusOr<Remedy> choose_remedy(const JobSpec& job, const Plan& current,
                                     const std::vector<MeasuredWorker>& measured,
                                     const std::vector<WorkerId>& stragglers, uint64_t steps_left,
                                     uint64_t generation);

/// Step time of the plan at the speeds that were measured, as `simulate`.
absl::StatusOr<double> predict_step_us(const JobSpec& job, const Plan& plan,
                                       const std::vector<MeasuredWorker>& measured);

}  // namespace skein::plans
