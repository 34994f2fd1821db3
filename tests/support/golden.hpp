#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace skein::tests {

/// Compares with tests/golden/`name`; with SKEIN_UPDATE_GOLDEN=1, writes it instead. Tests run in
/// the repository's root.
inline void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = "tests/golden/" + name;
  const char* update = std::getenv("SKEIN_UPDATE_GOLDEN");
  if (update != nullptr && std::string(update) == "1") {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream file(path);
  std::ostringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(text, golden.str()) << path << "; SKEIN_UPDATE_GOLDEN=1 accepts the new one";
}

}  // namespace skein::tests
