#include "cli/config/text_file.hpp"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace skein::cli {
absl::StatusOr<std::string> read_text_file(const std::string& path, const std::string& what,
                                           size_t bytes_max) {
  std::error_code error;
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat("no ", what, " ", path));
  }
  std::string text;
  char block[1 << 16];
  while (text.size() <= bytes_max && file.good()) {
    file.read(block, sizeof(block));
    text.append(block, static_cast<size_t>(file.gcount()));
  }
  if (text.size() > bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has more than ", bytes_max, " bytes; it is no ", what));
  }
  return text;
}

}  // namespace skein::cli
