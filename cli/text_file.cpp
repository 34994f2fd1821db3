#include "cli/text_file.hpp"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace skein::cli {
namespace {

/// A profile of 100 000 layers; what is larger was meant for something else.
constexpr size_t kTextBytesMax = 16 << 20;

}  // namespace

absl::StatusOr<std::string> read_text_file(const std::string& path, const std::string& what) {
  std::error_code error;
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat("no ", what, " ", path));
  }
  std::string text;
  char block[1 << 16];
  while (text.size() <= kTextBytesMax && file.good()) {
    file.read(block, sizeof(block));
    text.append(block, static_cast<size_t>(file.gcount()));
  }
  if (text.size() > kTextBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has more than ", kTextBytesMax, " bytes; it is no ", what));
  }
  return text;
}

}  // namespace skein::cli
