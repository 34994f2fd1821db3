#include "gpu/cuda/shared_library.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace skein::gpu {

absl::StatusOr<void*> open_shared_library(const std::string& name, const std::string& file,
                                          const char* variable) {
  std::vector<std::string> places = {file, absl::StrCat("/usr/local/cuda/lib64/", file)};
  if (const char* named = std::getenv(variable); named != nullptr) places = {named};
  std::string why;
  for (const std::string& place : places) {
    if (void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr) {
      return library;
    }
    absl::StrAppend(&why, why.empty() ? "" : "; ", dlerror());
  }
  return absl::UnavailableError(
      absl::StrCat("cannot load ", name, ": ", why, "; ", variable, " may name the file"));
}

}  // namespace skein::gpu
