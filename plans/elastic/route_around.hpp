#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/elastic/worker_pairs.hpp"
#include "plans/plan/plan.hpp"
#include "plans/planner/planner.hpp"

namespace skein::plans {

/// Whether two workers send to one another while the plan trains: they are neighbours in the
/// pipeline, or in one group. Replicas of one stage always are, as policies may group any of them.
bool are_neighbours(const Plan& plan, WorkerId a, WorkerId b);

/// Those of `workers` that some other one of them cannot reach: first the one that the fewest can
/// reach, of like ones the highest number.
std::vector<WorkerId> least_reached_first(const WorkerPairs& apart,
                                          const std::vector<WorkerId>& workers);
/// Without those, one after the other, until all that are left reach one another.
std::vector<WorkerId> who_reach_one_another(const WorkerPairs& apart,
                                            std::vector<WorkerId> workers);

/// What `route_around` is asked.
struct RouteAroundRequest {
  WorkerPairs apart;              // Who cannot reach one another; few.
  std::vector<WorkerId> workers;  // That may be used, ascending.
  /// A plan for some of them; null: there is none but the one that is given.
  std::function<absl::StatusOr<PlannedPipeline>(const std::vector<WorkerId>&)> make_plan;
  /// From which step on a plan would train, by the state that its workers can reach.
  std::function<uint64_t(const Plan&)> first_step;
  /// Whether each device has the memory that a plan asks of it; null: all have.
  std::function<bool(const Plan&)> fits;
  uint64_t newest_step = 0;  // Whose whole state is here.
  bool may_lose_steps = false;
};

struct RoutedAround {
  PlannedPipeline chosen;
  bool is_apart = false;   // No two neighbours are unable to reach one another.
  std::string difference;  // "w2 and w3 change places"; empty: none.
};

/// A plan in which no two neighbours are of `apart`, and that can be given the state: `chosen` if
/// it is so; else with two workers' places changed (members that it leaves out have a place as
/// well); else one that is made without the worker that the fewest can reach, then without two of
/// them, and so on. Ties: the higher number goes, the lower one changes places first. A plan that
/// begins with the newest step is taken before all others, and others only if steps may be lost.
/// Returns `chosen` if there is none. Cost: at most 64 plans are made, and 2,000 looked at.
RoutedAround route_around(PlannedPipeline chosen, const RouteAroundRequest& request);

}  // namespace skein::plans
