#pragma once

#include <vector>

#include "planner_cells.hpp"
#include "plans/planner/planner.hpp"

namespace skein::bench {

/// What it buys our planner to look at the other planners' plans, too, and what it costs: each cell
/// is planned once more without them.
class OthersValue {
 public:
  /// `ours`: the result with the others' plans.
  void add(const plans::PlanRequest& request, const CellResult& ours);
  void print() const;

 private:
  std::vector<double> with_s_, without_s_;  // CPU seconds of this process, by cell.
  Gains steps_;                             // Step without the others' plans / with them.
  int slower_ = 0;
  int without_a_plan_ = 0;
};

}  // namespace skein::bench
