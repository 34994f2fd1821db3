#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace skein::cli {

/// The contents of a small file that people write. `what` is what it should be, for messages: "job
/// file". InvalidArgument   if there is no such file or it has more than 16 MB.
absl::StatusOr<std::string> read_text_file(const std::string& path, const std::string& what);

}  // namespace skein::cli
