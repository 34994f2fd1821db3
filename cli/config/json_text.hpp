#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace skein::cli {

/// JSON as all of cli/ has it; objects keep their order. One type, which one source reads and
/// writes: the library's code for either takes seconds to compile.
using Json = nlohmann::ordered_json;

/// `is_discarded()` if the text is no JSON.
Json parse_json(std::string_view text);

/// In one line, or indented by so many blanks. Bytes that are no UTF-8 are replaced.
std::string json_text(const Json& json, int indent = -1);

}  // namespace skein::cli
