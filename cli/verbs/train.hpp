#pragma once

#include "cli/run/signals.hpp"
#include "cli/run/train_run.hpp"

namespace skein::cli {

/// Runs one job to its end. Returns the exit code.
int train(const TrainOptions& options, Signals& signals);

}  // namespace skein::cli
