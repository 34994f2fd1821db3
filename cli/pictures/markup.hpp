#pragma once

#include <string>

namespace skein::cli {

/// Text that may stand between tags and in quoted attributes of XML and HTML. Control characters
/// that XML does not know become spaces.
std::string escaped(const std::string& text);

/// A coordinate with at most two digits behind the point: "12.5", never "-0" or an exponent.
std::string pixels(double value);

}  // namespace skein::cli
