#include "plans/coordinator/coordinator_decisions.hpp"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::plans {

CoordinatorDecision diverged(const std::string& what, double loss, double gradient_norm) {
  return EndRun{absl::FailedPreconditionError(absl::StrCat(
                    what, ": loss ", loss, ", gradient norm ", gradient_norm,
                    ": the training diverged and the update was not applied; lower optimizer.lr or "
                    "lengthen lr_scheduler.warmup_steps, and go on from the last checkpoint")),
                false};
}

CoordinatorDecision too_large(const std::string& what) {
  return EndRun{
      absl::FailedPreconditionError(absl::StrCat(
          what,
          ": a gradient is no number, or larger than tokens.reproducible can add up (256 in a "
          "step, and that by its tokens in each of them), and the update was not applied; "
          "train without that key, or with fewer tokens a step")),
      false};
}

void append(CoordinatorDecisions& to, CoordinatorDecisions from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace skein::plans
