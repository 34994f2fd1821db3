#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan.hpp"
#include "plans/planner/measured_request.hpp"
#include "plans/planner/planner.hpp"
#include "plans/stragglers/stalls.hpp"

namespace skein::plans {

/// What is known when the members of a run have changed.
struct ReplanRequest {
  JobSpec job;
  std::optional<Plan> given;             // Plan file of the job, for workers 1, 2, ...
  std::vector<WorkerId> workers;         // That may be used, ascending; at least one.
  std::vector<MeasuredWorker> measured;  // Those that have measured; the planner needs all.
  std::optional<Plan> current;           // The plan that was in force; none: the first plan.
  /// A worker is lost and time counts: if every stage still has a replica, keep the others as they
  /// are and split its rows over the rest (`reroute`).
  bool is_urgent = false;
  uint64_t generation = 1;
  /// The host of each one's data address. Layouts place those of one host beside one another, so
  /// that a ring over a stage's replicas leaves each host once; who is not listed is as if alone.
  std::map<WorkerId, std::string> hosts;
  /// Who stalls in each of some steps, as `stalls_of`. Plans of pipeline replicas are chosen for
  /// workers that stall like that; empty: nothing is known of it.
  std::vector<StepRatios> stalls;
  /// The plan only serves to save what is there: it takes what memory it needs.
  bool only_saves = false;
};

/// The plan for these workers, in this order:
///   1 the plan that the job asks for (plan file, layout, or the planner's choice if it is to
///     choose), when the workers suffice for it. Where no choice of the planner fits the memory,
///     its micro-batches are halved until one does. Workers that hold a stage's state keep the
///     stage where devices are alike (layouts), so that least state moves.
///   2 urgent: the current plan without the replicas of lost workers, their rows split over the
///     stage's other replicas, when each stage keeps one and, as far as they have measured, these
///     have the memory. This comes before 1 for a job whose plan
///     the planner chooses.
///   3 an even layout of as many stages as there are workers, at most one per layer and at most the
///     job's own number of ranks, for a job whose own layout or plan file needs more workers than
///     there are. It keeps the job's (or file's) micro-batches, recomputation, and schedule if that
///     can be made for it, else 1F1B. Workers beyond one per stage replicate the first stages, as
///     evenly as possible. A layout
///     that leaves the number of ranks open and cannot be made for what is left of the workers of
///     `current` (too few for its virtual stages, say) comes here too.
/// FailedPrecondition   if the planner is to choose and some workers have not measured.
/// Else as `make_layout_plan`, `adopt_plan` and the planner; the message says what would fit.
absl::StatusOr<PlannedPipeline> replan(const ReplanRequest& request);

/// The same for pipeline replicas that train apart from each other: as many as there are workers
/// for, and state stays in place as for layouts; or those that the planner chooses, wherever state
/// is, if it is to.
absl::StatusOr<PlannedPipeline> replan_pipeline_replicas(const ReplanRequest& request);

/// What all workers of the request have measured, in their order.
/// FailedPrecondition   if some have not.
absl::StatusOr<std::vector<MeasuredWorker>> measured_of_all(const ReplanRequest& request);

/// Whether each worker of the plan has memory for its part; OK where not all workers of the request
/// have measured, or the plan has others.
/// ResourceExhausted    if one has not; the message says who.
absl::Status check_fits(const ReplanRequest& request, const Plan& plan);

/// True if the job leaves its plan to the planner, which may think for seconds.
bool is_chosen_by_planner(const ReplanRequest& request);

/// A plan by a quick rule, for a job whose plan the planner chooses and that has just lost workers:
/// the current one without them, their rows split over their stages' other replicas (`reroute`);
/// else, if a stage has no replica left or no memory for the rows, an even layout by speed: as many
/// stages as there are workers, at most one per layer, cut so that the slowest is as fast as
/// possible, in the order in which the workers hold stages now.
/// ResourceExhausted    if that does not fit the memory.
/// Else as `replan`.
absl::StatusOr<PlannedPipeline> quick_replan(const ReplanRequest& request);

/// The same for pipeline replicas: those of the current plan that have lost nobody, as they are.
/// NotFound    if there are none.
absl::StatusOr<PlannedPipeline> quick_replan_pipeline_replicas(const ReplanRequest& request);

}  // namespace skein::plans
