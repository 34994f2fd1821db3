#pragma once

#include <string>

#include "cli/run/signals.hpp"
#include "cli/verbs/train.hpp"

namespace skein::cli {

struct ProfileOptions {
  TrainOptions training;  // The job, the workers, and how to report.
  std::string profile_out = "profile.json";
  std::string cluster_out = "cluster.toml";
};

/// Measures the layers of a job on worker processes of this machine, and the links between them.
/// Prints what was found and writes it for `skein plan`. Returns the exit code.
int profile(const ProfileOptions& options, Signals& signals);

}  // namespace skein::cli
