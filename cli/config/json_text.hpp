#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace skein::cli {

/// JSON as all of cli/ has it; objects keep their order. One type, which one source parses and
/// prints: the library's code for either takes seconds to compile.
using Json = nlohmann::ordered_json;

/// `is_discarded()` if the text is no JSON.
Json parse_json(std::string_view text);

/// What is wrong with a text that is no JSON: "3: syntax error while ...", with the line; without
/// one " and what it is".
std::string json_complaint(std::string_view text);

/// The value in one line, or indented by so many blanks. Bytes that are no UTF-8 are replaced.
std::string json_text(const Json& json, int indent = -1);

/// The text that an object has under the key; "" if it has none, or is no object. The library's
/// own `value` throws on another type.
std::string text_at(const Json& object, const char* key);

/// The number that an object has under the key, or `otherwise`, as with `text_at`.
template <class Number>
Number number_at(const Json& object, const char* key, Number otherwise) {
  if (!object.is_object()) return otherwise;
  const auto found = object.find(key);
  return found == object.end() || !found->is_number() ? otherwise : found->get<Number>();
}

}  // namespace skein::cli
