#pragma once

#include <vector>

#include "cli/run/signals.hpp"
#include "cli/run/train_run.hpp"

namespace skein::cli {

/// Runs a job from start to end. Returns the exit code.
int train(const TrainOptions& options, Signals& signals);

/// Runs several jobs at once, each with a run folder and a coordinator of its own, on worker
/// processes that serve all of them. What one of them ends with leaves the others alone; a signal
/// is for all. Returns the worst exit code.
int train_together(std::vector<TrainOptions> jobs, Signals& signals);

}  // namespace skein::cli
