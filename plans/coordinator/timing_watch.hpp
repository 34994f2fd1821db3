#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/coordinator/measurements.hpp"
#include "plans/coordinator/planner_questions.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/modes/training_mode.hpp"
#include "plans/stragglers/mitigation_pace.hpp"
#include "plans/stragglers/speed_watch.hpp"
#include "plans/sync/policy_kind.hpp"

namespace skein::plans {

/// Follows how long workers are busy, step by step, and says when something should be done about
/// those that have become slower or faster. It asks, and does not think itself: that is for the
/// planner. A state machine without clock or I/O.
class TimingWatch {
 public:
  /// `mitigates`: the plan may be changed for a straggler.
  TimingWatch(const JobSpec& job, bool mitigates)
      : job_(job), mitigates_(mitigates), speeds_(/*is_measured=*/mitigates) {}

  /// It wants to be told what the plan expects of its workers.
  bool follows_speeds() const {
    return job_.elastic.watch_speeds || (mitigates_ && chooses_mode(job_));
  }
  void begin_generation(const Plan& plan) { speeds_.begin_generation(plan); }
  void expect(const ExpectationAnswer& answer) { speeds_.expect(answer.busy_us); }

  struct Observation {
    std::vector<SpeedChange>
        changes;                   // That have to be told, and that measurements have to follow.
    std::vector<SpeedChange> due;  // A mitigation is to be looked for.
  };
  Observation on_commit(uint64_t steps_done, const ModeTimings& timings);
  const RecentSteps& recent() const { return speeds_.recent(); }
  std::vector<StepRatios> stalls() const { return speeds_.stalls(); }
  /// The plan is changed for what was due.
  void on_mitigation(uint64_t steps_done) { pace_.on_mitigation(steps_done); }

 private:
  JobSpec job_;
  bool mitigates_ = false;
  SpeedWatch speeds_;
  MitigationPace pace_;
};

}  // namespace skein::plans
