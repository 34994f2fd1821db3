#pragma once

#include <string>

namespace skein::cli {

/// The text as a TOML string, quotes included.
std::string toml_string(const std::string& text);

/// The shortest TOML float that reads back as the same number.
std::string toml_number(double value);

}  // namespace skein::cli
