#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/config/job_file.hpp"

namespace skein::cli {

/// Checks a command that has no job. `options` are the command's, as "--device"; `why` says why it
/// takes no keys and may be empty.
/// InvalidArgument   if keys of a job were given; it names the command's own option that was meant.
absl::Status refuse_job_keys(const std::string& command, const std::string& why,
                             const std::vector<std::string>& options, const Overrides& given);

}  // namespace skein::cli
