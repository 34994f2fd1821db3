#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cli/config/job_file.hpp"

namespace skein::cli {

/// The folder of one run and what it holds from the start: config.toml, config.resolved.toml,
/// env.json, logs/, traces/. Nothing that exists is overwritten.
struct RunFolder {
  std::string path;    // Absolute.
  std::string job_id;  // Its name.

  std::string file(const std::string& name) const { return path + "/" + name; }
};

/// Makes "<dump_folder>/<name>-<yyyymmdd-hhmmss>" (with "-2", "-3", ... if it exists) and points
/// "<dump_folder>/latest" at it. Unavailable with the reason if it cannot be made.
absl::StatusOr<RunFolder> make_run_folder(const LoadedJob& job);

/// An existing run's folder, to go on in. NotFound if it is none.
absl::StatusOr<RunFolder> open_run_folder(const std::string& path);

}  // namespace skein::cli
