#include "plans/collectives/reducer_kind.hpp"

#include <vector>

#include "plans/base/nearest_name.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::plans {
namespace {

/// In the order of the kinds.
const std::vector<std::string>& names() {
  static const std::vector<std::string> all = {"sum",  "mean", "adasum", "topk",   "hitopk",
                                               "fp16", "bf16", "hisum",  "topka2a"};
  return all;
}

}  // namespace

absl::StatusOr<ReducerKind> parse_reducer_kind(const std::string& name) {
  SKEIN_ASSIGN_OR_RETURN(const size_t place, find_name(name, names(), "sync.reducer"));
  return static_cast<ReducerKind>(place);
}

std::string name_of(ReducerKind kind) { return names()[static_cast<size_t>(kind)]; }

}  // namespace skein::plans
