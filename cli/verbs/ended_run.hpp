#pragma once

#include "absl/status/status.h"
#include "cli/run/run_folder.hpp"

namespace skein::cli {

/// Prints what the folder says of a run that no coordinator runs any more, as a line or as JSON: at
/// which step it has ended, and how it goes on if something is left to do; the last step is to be
/// saved, too. An error if what the folder says cannot be read.
absl::Status print_ended_run(const RunFolder& folder, bool as_json);

}  // namespace skein::cli
