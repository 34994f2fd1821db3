#include "cli/config/json_text.hpp"

#include "absl/strings/str_cat.h"

namespace skein::cli {

Json parse_json(std::string_view text) {
  return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

std::string json_complaint(std::string_view text) {
  std::string message;
  try {
    const Json json = Json::parse(text.begin(), text.end());
  } catch (const Json::exception& error) {
    message = error.what();
  }
  // "[json.exception.parse_error.101] parse error at line 3, character 5: what"
  const size_t line = message.find("at line ");
  const size_t colon = message.find(": ", line == std::string::npos ? 0 : line);
  if (line == std::string::npos || colon == std::string::npos) {
    return absl::StrCat(" ", message.substr(message.find("] ") + 1));
  }
  const size_t digits = line + 8;
  return absl::StrCat(message.substr(digits, message.find(',', digits) - digits), ": ",
                      message.substr(colon + 2));
}

std::string json_text(const Json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string text_at(const Json& object, const char* key) {
  if (!object.is_object()) return "";
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace skein::cli
