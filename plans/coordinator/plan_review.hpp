#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/coordinator/plan_candidates.hpp"
#include "plans/coordinator/plan_change.hpp"
#include "plans/coordinator/plan_trials.hpp"
#include "plans/coordinator/planner_questions.hpp"
#include "plans/coordinator/planner_requests.hpp"
#include "plans/coordinator/timing_watch.hpp"
#include "plans/elastic/worker_pairs.hpp"
#include "plans/modes/mode_choice.hpp"
#include "plans/modes/mode_list.hpp"
#include "plans/modes/planned_mode_choice.hpp"
#include "plans/modes/training_mode.hpp"

namespace skein::plans {

/// Whether the plan in force is still the right one. After each commit it looks at what the step
/// took, asks the planner when something may be done about it, or when members have changed, and
/// says what the answers mean: another plan, which it proposes to the next change of plan; another
/// training mode; or nothing, and why. A state machine without clock or I/O; what it is wired to
/// outlives it.
class PlanReview {
 public:
  /// `last`: the plan of an earlier life of the coordinator, none: this is the first.
  PlanReview(const PlanCandidates& candidates, const std::optional<Plan>& last,
             const ModeList& modes, PlanChange& change, PlannerRequests& requests);

  /// The mode that plans are made in from now on.
  const ModeEntry& mode() const { return find_mode(modes_, mode_); }
  /// Makes a plan in the mode that may be changed to; null: the job stays in its mode.
  PlanMaker make_otherwise() const;
  /// The next plan is one of that mode; what people are told.
  RunEvent change_mode(const std::string& mode, const std::string& why);

  /// What follows for the run.
  struct Advice {
    CoordinatorDecisions decisions;
    std::string reason;  // Why the plan is to be changed at the next commit; empty: it stays.
  };

  /// The plan is about to be given out.
  void on_chosen(const PlannedPipeline& chosen) { trials_.on_chosen(chosen); }
  /// The plan is in force. `was_urgent`: it was made in a hurry, after a loss.
  CoordinatorDecisions begin_generation(bool was_urgent);
  struct Commit {
    uint64_t steps_done = 0;
    double step_us = 0;     // What the last step took.
    double lent_share = 0;  // The part of that in which other jobs had devices.
    ModeTimings timings;
    uint64_t generation = 0;  // The plan in force has it.
  };
  /// Whose speed has changed, and for whom something is due. Measurements are to follow that before
  /// `look`.
  TimingWatch::Observation on_commit(const Commit& commit);
  /// Asks the planner what may be done about it, and about the mode.
  CoordinatorDecisions look(const Commit& commit, const TimingWatch::Observation& seen,
                            uint64_t now_us);
  /// Whether it is time to try another plan, or to stay with the fastest of those that were tried.
  Advice try_another(const Commit& commit);
  /// Workers take longer or shorter than planned: `seek_better` is to be called.
  bool wants_better() const { return !speeds_reason_.empty(); }
  /// Members or speeds have changed: is there a better plan? `apart`: who cannot reach one another;
  /// `generation`: of the plan in force.
  Advice seek_better(const WorkerPairs& apart, uint64_t generation, uint64_t steps_done,
                     uint64_t now_us);
  /// A worker that holds replicas is to leave.
  bool must_change() const;
  /// With whom stragglers may be relieved: those of the plan in force, then others as far as a plan
  /// may have more, ascending; none: some of the plan are to leave, and another is on its way.
  std::optional<std::vector<WorkerId>> workers_to_keep(uint64_t now_us) const;

  /// An answer of the planner, while the plan may be changed; `is_held`: it will be, for another
  /// reason.
  Advice take(const PlannerAnswer& answer, uint64_t steps_done, bool is_held);
  void take(const ExpectationAnswer& answer) { timings_.expect(answer); }

  /// Who stalled lately, for a `ReplanRequest`.
  std::vector<StepRatios> stalls() const { return timings_.stalls(); }

 private:
  const JobSpec& job() const { return candidates_.job(); }
  bool is_member(WorkerId worker) const { return candidates_.members().has(worker); }
  PlanMaker planner_of(const std::string& mode) const { return find_mode(modes_, mode).make_plan; }
  CoordinatorDecisions ask_expectation();
  void plan_for_speeds(const std::vector<SpeedChange>& due);
  CoordinatorDecisions ask_mitigation(const Commit& commit, const std::vector<SpeedChange>& due,
                                      uint64_t now_us);
  CoordinatorDecisions look_at_mode(const Commit& commit, uint64_t now_us);
  Advice take(const ChangeAnswer& answer, uint64_t steps_done);
  Advice try_from_here(const PlannedPipeline& candidate, const std::string& speeds);
  Advice take(const MitigationAnswer& answer, uint64_t steps_done);
  Advice take(const PolicyAnswer& answer);
  Advice take(const ModeAnswer& answer);
  CoordinatorDecisions tell_spare(const std::string& why);
  Advice change_to(const ModeChoice::Change& change);

  const PlanCandidates& candidates_;
  const ModeList& modes_;
  PlanChange& change_;
  PlannerRequests& requests_;
  std::string mode_;
  ModeChoice mode_choice_;
  PlannedModeChoice planned_mode_;
  TimingWatch timings_;
  PlanTrials trials_;
  std::string speeds_reason_;  // Why to look for a better plan, beside members.
  struct Considered {
    std::vector<WorkerId> workers;
    std::string speeds_reason;
  } considered_;                         // Whom, and what for, a better plan was last looked for.
  std::vector<std::string> told_spare_;  // Who has no place in the plan, as people know.
};

}  // namespace skein::plans
