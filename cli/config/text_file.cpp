#include "cli/config/text_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace skein::cli {
namespace {

/// A folder is no file, but what may not be read, or cannot be, is there.
absl::Status not_read(const std::string& path, const std::string& what, int error) {
  if (error == ENOENT || error == ENOTDIR || error == EISDIR) {
    return absl::InvalidArgumentError(absl::StrCat("no ", what, " ", path));
  }
  const std::string text = absl::StrCat("cannot read ", path, ": ", strerror(error));
  return error == EACCES ? absl::PermissionDeniedError(text) : absl::UnavailableError(text);
}

}  // namespace

absl::StatusOr<std::string> read_text_file(const std::string& path, const std::string& what,
                                           size_t bytes_max) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return not_read(path, what, errno);
  std::string text;
  char block[1 << 16];
  ssize_t count = 1;
  while (text.size() <= bytes_max && count != 0) {
    count = read(file, block, sizeof(block));
    if (count < 0 && errno != EINTR) break;
    if (count > 0) text.append(block, static_cast<size_t>(count));
  }
  const int error = errno;
  close(file);
  if (count < 0) return not_read(path, what, error);
  if (text.size() > bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has more than ", bytes_max, " bytes; it is no ", what));
  }
  return text;
}

}  // namespace skein::cli
