#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/plan/plan.hpp"
#include "plans/planner/planner.hpp"

namespace skein::plans {

/// What a change of plans costs, beside the bytes that travel.
struct MoveCost {
  double bytes_per_second = 1e8;  // At which state travels, all workers together; > 0.
  double fixed_us = 1e6;          // Pause of any new plan: groups, models, the step cut off; >= 0.
};

/// A new plan for workers whose speeds have changed, or the reason why there is none.
struct Mitigation {
  /// Cheapest first.
  enum class Kind {
    kNone,        // The plan stays.
    kSplitRows,   // Other rows of the micro-batches: every worker keeps its layers.
    kMoveLayers,  // Some worker gets layers that it did not hold.
    kDropWorker,  // Some worker of the plan has nothing to do any more.
  };
  Kind kind = Kind::kNone;
  Plan plan;                     // kNone: the current one.
  double gain = 0;               // Share of the step time that is saved, in [0, 1).
  double predicted_step_us = 0;  // What `plan` takes, simulated with the new speeds.
  double move_us = 0;            // Pause until it is in force; kNone: 0.
  std::string reason;            // One line.
};

struct MitigationOptions {
  /// Workers that may be dropped. Others are dropped only if the planner sees no use for them.
  std::vector<WorkerId> stragglers;
  uint64_t steps_left = 0;  // Of the run.
  MoveCost move;
  /// Smaller gains are within what a prediction errs by, and are not worth a pause; in [0, 1).
  double gain_min = 0.05;
  /// A mitigation is as good as the best one if the rest of the run takes at most this much longer.
  double slack = 0.03;
  /// False: every stage keeps its devices, but for stragglers that are dropped from it. True: whole
  /// new plans are made, too, which takes seconds, so not where heartbeats wait for it, and not
  /// where the layout was written by hand.
  bool may_replan = false;
};

/// Chooses what to do about workers that have become slower or faster. Each mitigation is judged by
/// the time that the rest of the run takes with it: `steps_left` simulated steps, and the pause.
/// Among those that are about as good as the best one, the first in the order of `Mitigation::Kind`
/// is taken, then the one with the shortest rest. kNone if none saves time, or all save too little
/// of a step.
///
/// Candidates are: the rows of each stage split anew by speed, also of micro-batches of other sizes
/// that the request allows; the cuts moved as well; the same without the stragglers; and what
/// `plan_skein` plans with and without them. That one performance model prices them all is
/// Chameleon's idea, which chooses so between reroute and re-plan.
///
/// `request`  as for the planner, with the new speeds, `generation` that of the new plan; worker w
/// of
///            `current` is `cluster.devices[w - 1]`.
/// InvalidArgument   if the request is not valid, `current` does not fit it, or an option is out of
///                   range.
/// Cost       six bounded searches and a dozen simulations: 50 ms for 16 devices, 0.12 s for 64 (48
///            layers, one virtual core, Nov 2026); with `may_replan` that of `plan_skein` twice, up
///            to 7 s for the same.
absl::StatusOr<Mitigation> choose_mitigation(const Plan& current, const PlanRequest& request,
                                             const MitigationOptions& options);

/// "none", "split rows", "move layers", "drop worker".
const char* to_text(Mitigation::Kind kind);

}  // namespace skein::plans
