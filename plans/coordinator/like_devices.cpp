#include "plans/coordinator/like_devices.hpp"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace skein::plans {

std::string kind_of_device(const std::string& name) {
  std::string kind = name;
  for (const char* where : {" (", " at speed "})
    kind.resize(std::min(kind.size(), kind.find(where)));
  constexpr size_t kOrdinal = 4;  // Behind "cuda".
  if (absl::StartsWith(kind, "cuda:")) {
    const size_t end = std::min(kind.size(), kind.find(' '));
    kind.erase(kOrdinal, end - kOrdinal);
  }
  return kind;
}

std::optional<RunEvent> LikeDevices::on_device(WorkerId worker, const std::string& name) {
  if (name.empty()) return std::nullopt;
  const std::string kind = kind_of_device(name);
  if (first_kind_.empty()) {
    first_ = worker;
    first_kind_ = kind;
  }
  if (kind == first_kind_) return std::nullopt;
  return RunEvent{
      "worker.unlike",
      absl::StrCat("w", worker.value, " computes on ", kind, " and w", first_.value, " on ",
                   first_kind_,
                   ": tokens.reproducible = true gives the same bits on like devices only; start "
                   "all workers with the same device and threads"),
      {{"worker", absl::StrCat(worker.value)}, {"device", kind}, {"expected", first_kind_}},
      /*anybody_may_cause=*/true};
}

}  // namespace skein::plans
