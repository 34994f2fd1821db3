#pragma once

#include <string>

#include "cli/config/job_file.hpp"
#include "cli/run/signals.hpp"

namespace skein::cli {

struct CompareOptions {
  std::string path;     // Experiment file.
  std::string folder;   // Instead of compare.folder.
  bool fresh = false;   // Makes runs again that are done.
  Overrides overrides;  // Keys of all runs.
};

/// Makes all runs of an experiment that are not done yet, one `skein train` after the other, and
/// writes compare.csv and compare.html. A run that fails is reported, and the others are made.
/// Returns the exit code: kExitFault if a run failed, kExitStopped if it was told to stop.
int compare(const CompareOptions& options, Signals& signals);

}  // namespace skein::cli
