#pragma once

#include <cstdint>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"

namespace skein::gpu {

/// The tokens behind which a model's text ends: `eos_token_id`, a number or several, of the
/// folder's generation_config.json, else of its config.json. Empty if neither says.
/// DataLoss   a file is damaged, or has something else there.
absl::StatusOr<std::set<int32_t>> read_end_tokens(const std::string& folder);
/// The same of the value of `eos_token_id` in the file `path`.
absl::StatusOr<std::set<int32_t>> parse_end_tokens(const nlohmann::json& value,
                                                   const std::string& path);

}  // namespace skein::gpu
