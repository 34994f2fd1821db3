#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "plans/base/change_patience.hpp"
#include "plans/coordinator/planner_questions.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/modes/mode_choice.hpp"
#include "plans/plan/plan.hpp"
#include "plans/stragglers/speed_watch.hpp"

namespace skein::plans {

/// What `sync.policy = "auto"` does where the planner chooses the plan: follows how much longer or
/// shorter than expected workers take, step by step, and says when the best plan of pipeline
/// replicas, or that of all together, makes more progress under the like. Of a mode that was in
/// force, it knows what the run really did of what was predicted; of the other one, only the
/// prediction: it is tried if that promises more. Jobs of every other policy stay as they begin.
/// Ours. A state machine without clock or I/O.
class PlannedModeChoice {
 public:
  /// `is_planned`: the planner chooses the job's plan.
  PlannedModeChoice(const JobSpec& job, bool is_planned);

  /// The job may change its mode: a resumed run goes on as its last plan did.
  bool may_change() const { return may_change_; }
  void begin_generation(const Plan& plan);
  /// These are the members: what was measured of a mode with others tells nothing any more.
  void forget_without(const std::set<WorkerId>& members);
  /// A commit is out, whose steps took so long each.
  void on_commit(uint64_t steps_done, double step_us);
  /// These are the last steps. True if it is time for a look.
  bool is_due(const RecentSteps& steps);
  std::optional<ModeChoice::Change> on_answer(const ModeAnswer& answer);
  /// One line for people on the last answer.
  const std::string& last_look() const { return look_text_; }

 private:
  /// What the last steps of the plan in force really did; 0: not known.
  double measured_per_second() const;
  /// What was measured of the mode over what was predicted; 1: not known.
  double bias_of(const std::string& mode) const;

  bool may_change_ = false;
  double iterations_of_step_ = 1;
  std::string mode_;  // That of the plan in force.
  struct Span {
    uint64_t steps_done = 0;
    double step_us = 0;  // What each of its steps took.
  };
  // Commits of the plan in force; the first one only says where the second begins.
  std::deque<Span> spans_;
  struct Measured {
    double bias = 1;             // Measured over predicted iterations.
    std::set<WorkerId> workers;  // Those of the plan that it was measured of.
    bool is_sure = false;        // By enough steps; by fewer, only the best is believed.
  };
  // By mode, until a plan in it has other workers, or one of them is gone. The best plans of the
  // two modes may well have unlike ones.
  std::map<std::string, Measured> measured_;
  std::set<WorkerId> workers_;  // Those of the plan in force.
  std::string look_text_;
  uint64_t last_look_ = 0, next_look_ = 0;  // When so many steps of it have been seen.
  uint32_t changes_ = 0;
  ChangePatience patience_;
};

}  // namespace skein::plans
