#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/plan/plan.hpp"
#include "plans/profile/cluster.hpp"
#include "plans/profile/profile.hpp"
#include "plans/simulator/simulator.hpp"

namespace skein::plans {

/// What a planner is asked.
struct PlanRequest {
  Profile profile;
  ClusterSpec cluster;
  int64_t global_batch_rows = 0;  // Samples of one step, > 0.
  /// Rows of a micro-batch that may be chosen, each a divisor of `global_batch_rows`, ascending.
  /// Planners that take the micro-batch as given use the first one (data parallelism: the first
  /// with a row for each device); ours chooses.
  std::vector<int64_t> microbatch_rows;
  /// Schedules that may be chosen. Planners that know one schedule only use 1F1B, or the first one
  /// if 1F1B is not among them; "dapple" also 1F1B-PB.
  std::vector<ScheduleKind> schedules = {ScheduleKind::k1F1B};
  bool may_recompute = false;
  /// Ours looks at the plans of the other planners, too.
  bool asks_others = true;
  /// How plans are judged and re-ranked; `scenario` and `steps` as in `simulate`.
  SimulationOptions simulation;
  uint64_t generation = 1;
};

/// InvalidArgument naming the field that is out of range.
absl::Status validate(const PlanRequest& request);

/// A plan and why it is this one.
struct PlannedPipeline {
  Plan plan;
  double objective_us = 0;  // The planner's own prediction of the step time.
  std::string reason;       // One line.
  /// Plans for the same workers that promise about the same, best first: worth trying.
  std::vector<PlannedPipeline> rivals;
};

/// One way to plan. All are pure; same request, same plan.
/// ResourceExhausted   if no plan of its kind fits the memory; the message says which device lacks
///                     how many bytes and what would make it fit.
/// InvalidArgument     if the request is not valid, or it cannot plan for this shape at all (an
///                     exhaustive search beyond its budget, for example).
using PlannerFunction = absl::StatusOr<PlannedPipeline> (*)(const PlanRequest& request);

struct Planner {
  const char* name;  // "dapple", as in tables and on the command line.
  PlannerFunction make_plan;
  bool chooses_rows = false;  // Among those of the request; else it takes the first.
};

/// All of them, ours ("skein") first.
const std::vector<Planner>& planners();

/// What a planner's plan is worth.
struct PlanVerdict {
  std::string planner;
  absl::Status status;  // What the planner or the memory check says; the rest is empty if not OK.
  PlannedPipeline pipeline;
  Simulation simulation;  // With records if the request's options keep them.
};

/// Plans with this planner and simulates its plan. One that takes the micro-batch as given is asked
/// for each choice of rows, and its best plan counts.
/// A plan that exceeds a device's memory has a ResourceExhausted status.
PlanVerdict planner_verdict(const Planner& planner, const PlanRequest& request);

/// The verdicts on all planners, in the order of `planners()`.
std::vector<PlanVerdict> compare_planners(const PlanRequest& request);

/// OK if every worker of the plan fits its device.
/// ResourceExhausted   names the device that lacks most, what it needs for what, and all that would
///                     make the plan fit: recomputation, 1F1B, fewer rows, more stages. Each was
///                     tried and does.
/// InvalidArgument     if the plan has a worker that the cluster has no device for.
/// `claims_in_flight`  as in `plan_memory`.
absl::Status check_memory(const Plan& plan, const Profile& profile, const ClusterSpec& cluster,
                          int64_t claims_in_flight = 1);

}  // namespace skein::plans
