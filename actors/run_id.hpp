#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace skein::actors {

/// The id of the run of a run folder, which is in its file run.id: made once, the same in all
/// lives of the run's coordinator, and known to its workers.
inline constexpr const char* kRunIdName = "run.id";

/// A run and where it is kept.
struct RunPlace {
  std::string folder;
  std::string run;  // Its id.
};

/// Whether it can be the id of a run.
bool is_run_id(const std::string& text);
/// Unavailable if the file cannot be read or has no id.
absl::StatusOr<std::string> read_run_id(const std::string& run_folder);
/// Unavailable if the folder of `run` is not seen from here under this path, with the reason.
absl::Status check_run_folder(const std::string& run_folder, const std::string& run);

}  // namespace skein::actors
