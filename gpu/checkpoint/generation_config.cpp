#include "gpu/checkpoint/generation_config.hpp"

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gpu/checkpoint/checkpoint_listing.hpp"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/files/json_file.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {
namespace {

constexpr const char* kKey = "eos_token_id";

/// A value of a file in a line of a message.
std::string shown(const nlohmann::json& value) {
  constexpr size_t kCharactersMax = 40;
  std::string text =
      value.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  if (text.size() <= kCharactersMax) return text;
  return absl::StrCat(text.substr(0, kCharactersMax), "...");
}

bool is_token(const nlohmann::json& json) {
  return json.is_number_unsigned() && json.get<uint64_t>() <= INT32_MAX;
}

}  // namespace

absl::StatusOr<std::set<int32_t>> parse_end_tokens(const nlohmann::json& value,
                                                   const std::string& path) {
  const auto all = value.is_array() ? value : nlohmann::json::array({value});
  std::set<int32_t> tokens;
  for (const nlohmann::json& token : all) {
    if (!is_token(token)) {
      return absl::DataLossError(absl::StrCat(path, ": ", kKey, " has ", shown(token),
                                              ", which is no token number; give the number of the "
                                              "token there"));
    }
    tokens.insert(token.get<int32_t>());
  }
  return tokens;
}

absl::StatusOr<std::set<int32_t>> read_end_tokens(const std::string& folder) {
  for (const char* name : {kGenerationConfigName, kConfigName}) {
    const std::string path = absl::StrCat(folder, "/", name);
    if (std::error_code error; !std::filesystem::exists(path, error)) continue;
    SKEIN_ASSIGN_OR_RETURN(const nlohmann::json json, read_json(path));
    const nlohmann::json& value = field_or_null(json, kKey);
    if (!value.is_null()) return parse_end_tokens(value, path);
  }
  return std::set<int32_t>();
}

}  // namespace skein::gpu
