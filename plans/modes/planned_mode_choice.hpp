#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plans/base/change_patience.hpp"
#include "plans/coordinator/planner_questions.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/modes/mode_choice.hpp"
#include "plans/plan/plan.hpp"
#include "plans/stragglers/speed_watch.hpp"

namespace skein::plans {

/// One line for people.
std::string to_text(const ModeAnswer& answer);

/// What `sync.policy = "auto"` does where the planner chooses the plan: follows how much longer or
/// shorter than expected workers take, step by step, and says when the best plan of pipeline
/// replicas, or that of all together, makes more progress under the like. Jobs of every other
/// policy stay as they begin. Ours. A state machine without clock or I/O.
class PlannedModeChoice {
 public:
  /// `is_planned`: the planner chooses the job's plan.
  PlannedModeChoice(const JobSpec& job, bool is_planned);

  /// The job may change its mode: a resumed run goes on as its last plan did.
  bool may_change() const { return may_change_; }
  void begin_generation(const Plan& plan);
  /// Commits are out, and these are the last steps. True if it is time for a look.
  bool is_due(const RecentSteps& steps);
  std::optional<ModeChoice::Change> on_answer(const ModeAnswer& answer);

 private:
  bool may_change_ = false;
  std::string mode_;                        // That of the plan in force.
  uint64_t last_look_ = 0, next_look_ = 0;  // When so many steps of it have been seen.
  uint32_t changes_ = 0;
  ChangePatience patience_;
};

}  // namespace skein::plans
