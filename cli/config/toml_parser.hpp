#pragma once

// toml++ as all of cli/ uses it. Without exceptions, so parsing gives a result with an error in it;
// Debian's compiled form of it has them, so it is used as a header. Without its assertions: one on
// the first character of a key comes before the check that makes a proper error of it.
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#define TOML_ASSERT(expr) static_cast<void>(0)

#include <toml++/toml.h>

#include <sstream>
#include <string>

namespace skein::cli {

/// A value as it stands in a file.
inline std::string text_of(const toml::node& node) {
  std::ostringstream out;
  out << toml::node_view<const toml::node>(node);
  return out.str();
}

}  // namespace skein::cli
