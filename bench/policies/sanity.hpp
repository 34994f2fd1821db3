#pragma once

#include "bench/policies/comparison.hpp"

namespace skein::bench {

/// What must hold of every policy, in seconds: the target is reached on shuffled parts when nothing
/// disturbs, averages keep the mean of a stage, and a run repeats bit for bit. Prints what does
/// not hold; true if all does.
bool check_policies(const TaskMaker& make_task, const ComparisonOptions& options);

}  // namespace skein::bench
