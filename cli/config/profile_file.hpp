#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plans/profile/profile.hpp"

namespace skein::cli {

/// Reads a profile.json (docs/profile.md).
/// InvalidArgument   names the file and the line of a syntax error or the path of the key
///                   (`layers[3].forward_us`), what was expected and, for an unknown key, which one
///                   may have been meant.
absl::StatusOr<plans::Profile> load_profile(const std::string& path);
/// The same from text; `file` is for messages.
absl::StatusOr<plans::Profile> parse_profile(const std::string& text, const std::string& file);

/// The profile as text, a layer a line; parses back to the same profile.
std::string to_json(const plans::Profile& profile);
/// Replaces `path` durably. Errors of `gpu::write_durably`.
absl::Status save_profile(const std::string& path, const plans::Profile& profile);

}  // namespace skein::cli
