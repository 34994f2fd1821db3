#pragma once

#include <cstdint>
#include <functional>

#include "plans/planner/candidate_cost.hpp"
#include "plans/planner/candidate_plan.hpp"

namespace skein::plans {

/// A candidate plan and the length of its step by some measure.
struct RatedCandidate {
  CandidatePlan candidate;
  double step_us = 0;
};

/// Step time of a candidate plan; anything that is at least the second argument if it takes so
/// long; infinity if it is not possible.
using CandidateMeasure = std::function<double(const CandidatePlan&, double cutoff_us)>;

/// Goes to the first neighbour (`visit_neighbours`) that is better until none is, or `may_go_on`
/// says that the budget is used up. Never worse than `start`; deterministic.
RatedCandidate local_search(CostModel& model, RatedCandidate start, const CandidateMeasure& measure,
                            const std::function<bool()>& may_go_on);

}  // namespace skein::plans
