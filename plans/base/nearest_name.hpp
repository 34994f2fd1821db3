#pragma once

#include <string>
#include <vector>

namespace skein::plans {

/// The name that is nearest to a wrong one: " (did you mean training.seq_len?)", or empty if none
/// is near. A right last part behind a wrong section counts as near.
std::string suggestion(const std::string& wrong, const std::vector<std::string>& names);

}  // namespace skein::plans
