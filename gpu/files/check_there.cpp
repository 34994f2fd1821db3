#include "gpu/files/check_there.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace skein::gpu {

absl::Status check_there(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? absl::OkStatus() : not_there(path, errno);
}

absl::Status not_there(const std::string& path, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    return absl::NotFoundError(absl::StrCat(path, " is not there"));
  }
  const std::string text = absl::StrCat("cannot look at ", path, ": ", strerror(error));
  return error == EACCES ? absl::PermissionDeniedError(text) : absl::UnavailableError(text);
}

}  // namespace skein::gpu
