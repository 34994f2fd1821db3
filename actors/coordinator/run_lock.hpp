#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace skein::actors {

/// Held by the one coordinator of a run folder, as long as its process lives.
class RunLock {
 public:
  /// FailedPrecondition if another coordinator has it. Unavailable if the file cannot be made.
  static absl::StatusOr<std::unique_ptr<RunLock>> take(const std::string& run_folder);
  /// Whether a coordinator has it. False for a folder without one.
  static bool is_held(const std::string& run_folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  explicit RunLock(int file) : file_(file) {}
  int file_ = -1;
};

}  // namespace skein::actors
