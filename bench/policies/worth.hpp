#pragma once

#include <string>
#include <vector>

#include "bench/policies/comparison.hpp"

namespace skein::bench {

/// A task, with how it is measured: layout, policies and parts are overwritten.
struct WorthTask {
  std::string name;
  TaskMaker make_task;
  ComparisonOptions options;
  std::vector<double> momentum_rates, adam_rates;
};

/// What a step is worth that replicas do apart: steps to the target of all-reduce, divided by those
/// under overlapped averages, undisturbed, each at its best rate. Each constant of
/// `plans::progress_per_step` is fitted on each task, and judged on every other one. Prints what
/// was measured, the constants, and how far off they are, beside those of the product.
void print_worth(const std::vector<WorthTask>& tasks);

}  // namespace skein::bench
