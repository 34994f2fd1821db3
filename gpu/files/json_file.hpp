#pragma once

#include <string>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace skein::gpu {

/// Reads a JSON object. DataLoss if the file is none, or is larger than any of ours.
absl::StatusOr<nlohmann::json> read_json(const std::string& path);

/// The field `key`; null if there is none, or `json` is no object.
const nlohmann::json& field_or_null(const nlohmann::json& json, const char* key);

/// Copies the field `key` of the object that the file `path` holds. DataLoss if there is none of
/// this type.
template <class Value>
absl::Status take_field(const nlohmann::json& json, const std::string& path, const char* key,
                        Value& value) {
  const auto found = json.find(key);
  const bool fits =
      found != json.end() && (std::is_same_v<Value, bool>          ? found->is_boolean()
                              : std::is_same_v<Value, std::string> ? found->is_string()
                              : std::is_floating_point_v<Value>    ? found->is_number()
                                                                   : found->is_number_integer());
  if (!fits) return absl::DataLossError(absl::StrCat(path, " lacks a proper \"", key, "\""));
  value = found->get<Value>();
  return absl::OkStatus();
}

/// The same, where the field may be missing or null: `value` stays as it is then.
template <class Value>
absl::Status take_optional(const nlohmann::json& json, const std::string& path, const char* key,
                           Value& value) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return absl::OkStatus();
  return take_field(json, path, key, value);
}

}  // namespace skein::gpu
