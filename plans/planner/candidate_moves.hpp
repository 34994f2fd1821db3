#pragma once

#include <cstdint>
#include <functional>

#include "plans/planner/candidate_cost.hpp"
#include "plans/planner/candidate_plan.hpp"

namespace skein::plans {

/// Takes a neighbour; false: no more are wanted.
using CandidateVisitor = std::function<bool(const CandidatePlan&)>;

/// Visits the neighbours of a candidate plan in a fixed order, small changes first: a cut by 1, 2,
/// 4 .. layers; another schedule; other rows of a micro-batch or recomputation; a row to another
/// replica; and, with one stage per rank, a device to the stage beside, a device left out or taken
/// in, a stage split, two merged, all or one each of the devices of two stages swapped, replicas of
/// a stage reversed. Where devices or layers move, the cuts are tried as they were and rebalanced.
///
/// All neighbours have layers in every stage and rows in every replica; they may lack memory or
/// have a shape that their schedule is not made for.
void visit_neighbours(CostModel& model, const CandidatePlan& candidate,
                      const CandidateVisitor& visit);

}  // namespace skein::plans
