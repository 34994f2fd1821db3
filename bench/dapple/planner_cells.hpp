#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "plans/planner/planner.hpp"

namespace skein::bench {

/// Sums in another order differ by less.
inline constexpr double kRounding = 1e-9;

/// A planner's best plan for a cell: a model on a cluster.
struct CellResult {
  double step_us = std::numeric_limits<double>::infinity();
  plans::Plan plan;
};

/// The strongest form of every planner: rows of a micro-batch from the first number of the profile
/// on, doubled while the batch has them; 1F1B and 1F1B-PB; gradients that are reduced in buckets.
plans::PlanRequest cell_request(const plans::Profile& profile, int64_t global_batch_rows,
                                const plans::ClusterSpec& cluster);

/// One that takes the rows of a micro-batch as given is asked for each number of rows, and its best
/// plan counts.
CellResult plan_with(const plans::Planner& planner, const plans::PlanRequest& request);
/// By planner, in the order of `planners()`.
std::vector<CellResult> plan_cell(const plans::PlanRequest& request);

/// The planner of that name, and its result.
const plans::Planner& planner_named(const std::string& name);
const CellResult& result_of(const std::string& planner, const std::vector<CellResult>& results);

/// "8:8", "16" for data parallelism, "straight" for many stages of one device; longer ones than
/// `length` are cut off.
std::string shape_of(const plans::Plan& plan, size_t length = std::string::npos);

/// Ratios of step times, collected over the cells that have one.
struct Gains {
  int cells = 0;
  double log_sum = 0;
  double largest = 0;
  void add(double gain) {
    if (!std::isfinite(gain)) return;
    ++cells;
    log_sum += std::log(gain);
    largest = std::max(largest, gain);
  }
  double mean() const { return cells == 0 ? 1 : std::exp(log_sum / cells); }
};

/// "  name   1.15x   2.35x   18": geometric mean, largest, of cells.
void print_gains(const char* name, const Gains& gains);

}  // namespace skein::bench
