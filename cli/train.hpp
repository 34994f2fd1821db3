#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "actors/fail_point.hpp"
#include "cli/job_file.hpp"
#include "cli/run_folder.hpp"
#include "cli/run_reporter.hpp"
#include "cli/signals.hpp"

namespace skein::cli {

struct TrainOptions {
  std::string job_path;  // Empty with `resume`.
  Overrides overrides;
  std::string resume;           // A run directory to go on in.
  bool resumes_latest = false;  // Go on in <dump_folder>/latest if it is a run of this job.
  std::string chaos;            // Faults to be done to the run, as `plans::parse_chaos`.
  int64_t workers = 0;          // 0: what the job needs.
  bool spawns_workers = true;   // False: `skein coordinator`, workers join from elsewhere.
  std::string listen = "127.0.0.1:0";
  bool insecure = false;
  actors::FailPointHandle fail_point;  // Of tests; else null.
  LogFormat format = LogFormat::kText;
  bool quiet = false;
  /// Ends when devices and links are measured, and calls `on_profiled` with the run directory,
  /// which then has profile.json and cluster.toml.
  bool only_profiles = false;
  std::function<absl::Status(const RunFolder&)> on_profiled;
};

/// Runs one job to its end. Returns the exit code.
int train(const TrainOptions& options, Signals& signals);

}  // namespace skein::cli
