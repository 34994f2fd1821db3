#pragma once

#include "absl/status/status.h"

namespace skein::cli {

// What the program's exit code says, so that scripts know whether to try again.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFault = 1;  // A worker, the network or the machine failed.
inline constexpr int kExitUsage = 2;  // Bad arguments or job file: never try again.
// Data or a checkpoint is missing, damaged or not to be read: never try again.
inline constexpr int kExitBadData = 3;
// 70 is `actors::kExitActorFailed`: a bug, which a restart may get past.
inline constexpr int kExitStopped = 75;  // Stopped early, state saved: go on with --resume.
inline constexpr int kExitKilled = 130;  // By a second signal, or stopped with nothing saved.

/// The exit code for a status of a run or of a command.
int exit_code(const absl::Status& status);

/// Prints "skein: ..." on standard error, in one line, and returns the code.
int report_error(const absl::Status& status);
int report_error(const absl::Status& status, int code);

}  // namespace skein::cli
