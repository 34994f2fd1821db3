#include "cli/config/plan_file.hpp"

#include "absl/strings/str_cat.h"
#include "cli/config/text_file.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/modes/mode_list.hpp"

namespace skein::cli {
namespace {

/// A plan of 1,000 workers with 1,000 micro-batches each has fewer.
constexpr size_t kPlanBytesMax = 64 << 20;

}  // namespace

absl::StatusOr<plans::Plan> read_plan(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, "plan file", kPlanBytesMax));
  absl::StatusOr<plans::Plan> plan = plans::parse_plan(text);
  const absl::Status status =
      plan.ok() ? plans::check_mode(plans::training_modes(), plan->mode) : plan.status();
  if (status.ok()) return plan;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::string(status.message())));
}

}  // namespace skein::cli
