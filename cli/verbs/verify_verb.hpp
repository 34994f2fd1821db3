#pragma once

#include <ostream>
#include <string>

#include "absl/status/status.h"

namespace skein::cli {

/// Reads all of a checkpoint, or of every complete checkpoint of a run folder: each file's size
/// and digest, each tensor's digest, and its shape against config.json. Writes a line for what is
/// whole and a line for each fault.
/// NotFound   there is no complete checkpoint. DataLoss   there was a fault.
absl::Status verify_checkpoints(const std::string& path, std::ostream& out);

}  // namespace skein::cli
