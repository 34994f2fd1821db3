#pragma once

#include <string>

#include "cli/config/job_file.hpp"
#include "cli/run/signals.hpp"

namespace skein::cli {

struct DemoOptions {
  double seconds = 90;             // The length of the demo, >= kDemoSecondsMin.
  std::string keep = "./outputs";  // Where the run folder is made.
  Overrides overrides;             // Changes to the demo's job.
};

/// Less than that shows nothing.
inline constexpr double kDemoSecondsMin = 10;

/// Trains a small model on four unlike workers of this machine before the user's eyes, kills one,
/// adds one, and prints text that the model writes. Returns the exit code: kExitFault if the run
/// did not get over the loss or did not take the new worker in.
int demo(const DemoOptions& options, Signals& signals);

}  // namespace skein::cli
