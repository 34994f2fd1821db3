#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plans/coordinator/planner_questions.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/modes/training_mode.hpp"
#include "plans/plan/plan.hpp"
#include "plans/sync/sync_watch.hpp"

namespace skein::plans {

/// What `sync.policy = "auto"` does with a layout of the job's: follows what steps take, and says
/// when pipeline replicas should train apart from each other, or should not any more. Jobs of every
/// other policy stay as they begin. A state machine without clock or I/O.
class ModeChoice {
 public:
  /// `is_planned`: the planner chooses the job's plan, and `PlannedModeChoice` the mode.
  ModeChoice(const JobSpec& job, bool is_planned);

  /// The job may change its mode: a resumed run goes on as its last plan did.
  bool may_change() const { return may_change_; }
  void begin_generation(const Plan& plan);
  /// A commit is out. What to ask the planner, if it is time for a look. `commit_us`: from the
  /// commit before it.
  std::optional<PolicyQuestion> on_commit(const ModeTimings& timings, double commit_us);
  struct Change {
    std::string mode;  // That the next plan is to have.
    std::string event;
    std::string reason;
  };
  std::optional<Change> on_answer(const PolicyAnswer& answer);

 private:
  JobSpec job_;
  bool may_change_ = false;
  std::optional<SyncWatch> watch_;  // Watches the plan in force, if it has pipeline replicas.
  double added_us_ = 0;             // What an all-reduce added to a step, when it was seen last.
  uint32_t changes_ = 0;
};

}  // namespace skein::plans
