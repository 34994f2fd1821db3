#include "actors/run_id.hpp"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "net/codec/bounds.hpp"

namespace skein::actors {

absl::StatusOr<std::string> read_run_id(const std::string& run_folder) {
  const std::string path = absl::StrCat(run_folder, "/", kRunIdName);
  std::ifstream file(path);
  std::string id;
  if (std::getline(file, id) && !id.empty() && id.size() <= net::kNameBytesMax) return id;
  return absl::UnavailableError(
      absl::StrCat(path,
                   " has no id of a run; put it back from another copy, or delete it when "
                   "none of the run's workers lives"));
}

}  // namespace skein::actors
