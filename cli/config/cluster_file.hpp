#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "plans/profile/cluster.hpp"

namespace skein::cli {

/// Reads a cluster.toml (docs/cluster.md).
/// InvalidArgument   names file, line and key, what was expected and, for an unknown key or host,
///                   which one may have been meant.
absl::StatusOr<plans::ClusterSpec> load_cluster(const std::string& path);
/// The same from text; `file` is for messages.
absl::StatusOr<plans::ClusterSpec> parse_cluster(const std::string& text, const std::string& file);

/// The cluster as text, each device by itself; parses back to the same cluster.
std::string to_toml(const plans::ClusterSpec& cluster);

}  // namespace skein::cli
