#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan.hpp"
#include "plans/planner/measured_request.hpp"
#include "plans/stragglers/stalls.hpp"
#include "plans/stragglers/straggler_detector.hpp"
#include "plans/stragglers/straggler_mitigation.hpp"

namespace skein::plans {

/// What the workers of a plan took lately, against what is expected of them now.
struct RecentSteps {
  static constexpr size_t kKept = 32;  // Enough to see a stall rate of a tenth.
  std::deque<StepRatios> last;         // At most `kKept`.
  uint64_t seen = 0;                   // Since the plan is in force.
};

/// Compares what the workers of a plan take with what the plan expects of them, step by step. Knows
/// that worker ids have gaps, and the planner's devices do not.
class SpeedWatch {
 public:
  /// `is_measured`: expectations are times that workers have measured, not work by FLOPs.
  explicit SpeedWatch(bool is_measured);

  /// `plan` is in force. Until it is known what it expects of its workers, steps say nothing.
  void begin_generation(const Plan& plan);
  /// What each worker of the plan is to be busy in a step, as `expected_busy_us`: in an iteration
  /// of its pipeline replica, where these train apart.
  void expect(std::map<WorkerId, double> busy_us);
  /// How long replicas were busy in a step that is committed. Ascending by worker.
  std::vector<SpeedChange> on_step(uint64_t step, const std::map<ReplicaId, uint64_t>& busy_us);
  const RecentSteps& recent() const { return recent_; }
  /// Who stalled in the last steps since the plan, or what it expects, changed. Where these are
  /// few, in the last ones of an earlier such time that had enough, however long ago: workers that
  /// stall do so under any plan.
  std::vector<StepRatios> stalls() const;

 private:
  void keep(const std::map<WorkerId, WorkSample>& samples);
  void forget_steps();

  std::optional<Plan> plan_;
  std::map<WorkerId, double> expected_us_;  // Busy time of a step; empty: not known.
  StragglerDetector detector_;
  RecentSteps recent_;
  std::vector<StepRatios> stalls_;  // In the steps that were forgotten, when they were enough.
};

/// Busy time of a step for each worker of the plan, or of an iteration of its pipeline replica;
/// only ratios count. `measured`: what its workers have measured of themselves, in the speeds known
/// so far; empty: the work is what the layers' FLOPs say. Cost: with measurements, a simulation of
/// the plan.
std::map<WorkerId, double> expected_busy_us(const JobSpec& job, const Plan& plan,
                                            const std::vector<MeasuredWorker>& measured);

/// Divides the speed of a measured worker by `slowdown`.
void slow_down(MeasuredWorker& worker, double slowdown);

/// What to do about `stragglers`: `choose_mitigation` for a plan over workers with any ids, all of
/// whom have measured.
absl::StatusOr<Mitigation> choose_mitigation(const JobSpec& job, const Plan& current,
                                             const std::vector<MeasuredWorker>& measured,
                                             const std::vector<WorkerId>& stragglers,
                                             uint64_t steps_left, uint64_t generation);

/// Step time of the plan at the speeds that were measured, as `simulate`.
absl::StatusOr<double> predict_step_us(const JobSpec& job, const Plan& plan,
                                       const std::vector<MeasuredWorker>& measured);

}  // namespace skein::plans
