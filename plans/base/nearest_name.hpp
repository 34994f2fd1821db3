#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::plans {

/// The name that is nearest to a wrong one; empty if none is near. A right last part behind a wrong
/// section counts as near.
std::string nearest_name(const std::string& wrong, const std::vector<std::string>& names);

/// The same as a part of a message: " (did you mean training.seq_len?)", or empty.
std::string suggestion(const std::string& wrong, const std::vector<std::string>& names);

/// The place of `name` in `names`. InvalidArgument with `key`, the nearest name and all of them, if
/// it is not one of them.
absl::StatusOr<size_t> find_name(const std::string& name, const std::vector<std::string>& names,
                                 const std::string& key);

}  // namespace skein::plans
