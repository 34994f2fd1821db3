#pragma once

#include <cstdint>
#include <functional>

#include "plans/planner/draft_cost.hpp"
#include "plans/planner/plan_draft.hpp"

namespace skein::plans {

/// A draft and the length of its step by some measure.
struct RatedDraft {
  PlanDraft draft;
  double step_us = 0;
};

/// Step time of a draft; anything that is at least the second argument if it takes so long;
/// infinity if it is not possible.
using DraftMeasure = std::function<double(const PlanDraft&, double cutoff_us)>;

/// Goes to the first neighbour (`visit_neighbours`) that is better until none is, or `may_go_on`
/// says that the budget is used up. Never worse than `start`; deterministic.
RatedDraft local_search(CostModel& model, RatedDraft start, const DraftMeasure& measure,
                        const std::function<bool()>& may_go_on);

}  // namespace skein::plans
