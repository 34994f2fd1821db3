#include "actors/run_id.hpp"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "gpu/files/check_there.hpp"
#include "gpu/files/mapped_file.hpp"
#include "net/codec/bounds.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::actors {

bool is_run_id(const std::string& text) {
  net::Bounds bounds("run.id");
  bounds.name("text", capnp::Text::Reader(text.c_str(), text.size()));
  return !text.empty() && bounds.status().ok();
}

absl::StatusOr<std::string> read_run_id(const std::string& run_folder) {
  const std::string path = absl::StrCat(run_folder, "/", kRunIdName);
  std::ifstream file(path);
  std::string id;
  if (!file) {
    const absl::Status why = gpu::MappedFile::open(path).status();
    if (!why.ok() && !absl::IsNotFound(why)) return absl::UnavailableError(why.message());
  }
  if (std::getline(file, id) && is_run_id(id)) return id;
  return absl::UnavailableError(
      absl::StrCat(path,
                   " has no id of a run; put it back from another copy, or delete it when "
                   "none of the run's workers lives"));
}

absl::Status check_run_folder(const std::string& run_folder, const std::string& run) {
  const absl::Status there = gpu::check_there(run_folder);
  if (!there.ok() && !absl::IsNotFound(there)) return absl::UnavailableError(there.message());
  if (!there.ok()) {
    return absl::UnavailableError(absl::StrCat("the run folder ", run_folder,
                                               " is not to be seen from here; mount it where "
                                               "workers are, under the same path"));
  }
  SKEIN_ASSIGN_OR_RETURN(const std::string here, read_run_id(run_folder));
  if (here == run) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(run_folder, " is the folder of run ", here, " here"));
}

}  // namespace skein::actors
