#pragma once

#include <cstdint>
#include <string>

#include "cli/job_file.hpp"
#include "cli/run_reporter.hpp"
#include "cli/signals.hpp"

namespace skein::cli {

struct TrainOptions {
  std::string job_path;  // Empty with `resume`.
  Overrides overrides;
  std::string resume;          // A run directory to go on in.
  int64_t workers = 0;         // 0: what the job needs.
  bool spawns_workers = true;  // False: `skein coordinator`, workers join from elsewhere.
  std::string listen = "127.0.0.1:0";
  bool insecure = false;
  LogFormat format = LogFormat::kText;
  bool quiet = false;
};

/// Runs one job to its end. Returns the exit code.
int train(const TrainOptions& options, Signals& signals);

}  // namespace skein::cli
