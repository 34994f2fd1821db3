#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace skein::cli {

/// Larger than a profile of 100 000 layers: what exceeds it was meant for something else.
inline constexpr size_t kTextBytesMax = 16 << 20;

/// The contents of a small file that people write. `what` is what it should be, for messages: "job
/// file".
/// InvalidArgument                 there is no such file, or it has more than `bytes_max`.
/// PermissionDenied, Unavailable   it may not be read, or cannot be, with the reason.
absl::StatusOr<std::string> read_text_file(const std::string& path, const std::string& what,
                                           size_t bytes_max = kTextBytesMax);

}  // namespace skein::cli
