#include "plans/sync/reducer_kind.hpp"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plans/base/nearest_name.hpp"

namespace skein::plans {
namespace {

/// In the order of the kinds.
const std::vector<std::string>& names() {
  static const std::vector<std::string> all = {"sum",    "mean", "adasum", "topk",
                                               "hitopk", "fp16", "bf16"};
  return all;
}

}  // namespace

absl::StatusOr<ReducerKind> parse_reducer_kind(const std::string& name) {
  const auto found = std::find(names().begin(), names().end(), name);
  if (found != names().end()) return static_cast<ReducerKind>(found - names().begin());
  return absl::InvalidArgumentError(absl::StrCat("sync.reducer = \"", name, "\"",
                                                 suggestion(name, names()), ": must be one of ",
                                                 absl::StrJoin(names(), ", ")));
}

std::string name_of(ReducerKind kind) { return names()[static_cast<size_t>(kind)]; }

}  // namespace skein::plans
