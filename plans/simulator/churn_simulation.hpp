#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/chaos/churn_trace.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/profile/cluster.hpp"
#include "plans/profile/profile.hpp"

namespace skein::plans {

/// What changes of members cost, beside the work that is done again and the state that moves.
struct ChurnCosts {
  /// From a loss to training, and from a commit to training under another plan.
  double change_s = 0.05;  // measured, bench/recovery.py, median, 2 virtual cores, Nov 2026
  /// From a machine's coming until its worker has joined.
  double join_s = 0.1;  // measured, bench/spot/spot.py, 2 virtual cores, Nov 2026
  /// Then the worker measures its device, for the planner; one on each host at a time.
  double measure_s = 0.5;  // measured for the job of bench/spot/spot.py, the same
  /// The planner thinks so long, while training goes on.
  double planning_s = 0.05;  // measured for 8 workers, bench/spot/spot.py, the same
  /// Stop and restart: from a kill to the next step.
  double restart_s = 3.1;  // torchrun's, measured, bench/recovery.py, median, Nov 2026
  /// Stop and restart: steps between checkpoints, which cost nothing; 0: checkpoint.interval.
  int64_t checkpoint_steps = 0;
};

struct ChurnRequest {
  JobSpec job;
  Profile profile;
  ClusterSpec cluster;  // Of as many devices as `churn` was made for.
  Churn churn;
  ChurnCosts costs;
  std::vector<int64_t> template_stages;  // A way for each: pipelines of so many stages; each >= 1.
};

/// What became of a run.
struct ChurnOutcome {
  std::string way;
  double samples = 0;        // Of the steps that are committed at the end.
  int64_t plans = 0;         // Made in the course of it; the first one does not count.
  int64_t steps_redone = 0;  // Cut off, or committed and taken back.
  double stopped_s = 0;      // Without a step in progress.
};

struct ChurnSimulation {
  double length_s = 0;
  double members_mean = 0;
  double ideal_samples = 0;  // If all devices that are there computed all the time.
  double free_samples = 0;   // If the best plan were there at once, and no step was ever cut off.
  std::vector<ChurnOutcome> outcomes;  // Skein, stop and restart, then the templates.
};

/// Plays the same members to several ways of training in synchronous steps. All take a plan's step
/// time from the same simulation, and the job's first plan is there at 0 s.
///
/// - Skein: after a loss devices end the action that they have begun, a quick rule decides at once
/// (`quick_replan`, or `replan` where the job
///   has a layout), the planner's plan and newcomers follow at a commit if that pays
///   (`is_worthwhile`). Who has heard that it will go is left out at a commit. State comes from
///   live replicas, snapshots or the last checkpoint (`decide_restore`), at the speed of the links;
///   a snapshot is whole at the commit that orders it.
/// - Stop and restart, as torchrun does: any change of members goes back to the last checkpoint and
///   costs `restart_s`; then the planner's best plan is there. Who comes during a restart is part
///   of it, who goes begins it anew. Before a loss with a notice there is time for a checkpoint.
/// - Templates: only whole pipelines train (`ChurnPlans::whole_pipelines`). A loss or a newcomer
///   costs what it costs Skein, without measuring and planning.
///
/// InvalidArgument   if the job is not of synchronous steps, a number is out of range, or the
///                   devices of `churn` are not those of the cluster.
/// Cost              that of the planner, for each set of members.
absl::StatusOr<ChurnSimulation> simulate_churn(const ChurnRequest& request);

}  // namespace skein::plans
