#include "cli/config/toml_text.hpp"

#include <charconv>

#include "absl/strings/str_format.h"

namespace skein::cli {

std::string toml_string(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&result, "\\u%04x", static_cast<int>(c));
    } else {
      result += c;
    }
  }
  return result + "\"";
}

std::string toml_number(double value) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

}  // namespace skein::cli
