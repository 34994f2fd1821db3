#include "plans/modes/planned_mode_choice.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "plans/plan/pipeline_plan.hpp"
#include "plans/sync/policy_kind.hpp"

namespace skein::plans {
namespace {

constexpr uint64_t kStepsBetweenLooks = 8, kStepsBetweenLooksMax = 512;

ChangePatience patience_after(uint32_t changes) {
  ChangePatience::Options options;
  options.steps_first = steps_after_changes(kStepsBetweenLooks, changes);
  options.steps_max = kStepsBetweenLooksMax;
  return ChangePatience(options);
}

}  // namespace

std::string to_text(const ModeAnswer& answer) {
  return absl::StrCat("progress a second apart, with overlapped averages: ",
                      absl::SixDigits(answer.apart_per_second),
                      " iterations; all together: ", absl::SixDigits(answer.together_per_second),
                      "; ", answer.reason);
}

PlannedModeChoice::PlannedModeChoice(const JobSpec& job, bool is_planned)
    : may_change_(is_planned && chooses_mode(job)), patience_(patience_after(changes_)) {}

void PlannedModeChoice::begin_generation(const Plan& plan) {
  mode_ = plan.mode;
  patience_ = patience_after(changes_);
  next_look_ = 2 * patience_.steps_between_looks();
}

bool PlannedModeChoice::is_due(const RecentSteps& steps) {
  if (!may_change_ || steps.seen < next_look_ || steps.last.size() < kStepsBetweenLooks)
    return false;
  last_look_ = steps.seen;
  next_look_ = last_look_ + patience_.steps_between_looks();
  return true;
}

std::optional<ModeChoice::Change> PlannedModeChoice::on_answer(const ModeAnswer& answer) {
  const bool is_apart = mode_ == kLocalMode;
  const double now = is_apart ? answer.apart_per_second : answer.together_per_second;
  const double then = is_apart ? answer.together_per_second : answer.apart_per_second;
  const bool is_time = patience_.on_look(now, now == 0 ? 0 : then);
  next_look_ = last_look_ + patience_.steps_between_looks();
  if (!is_time) return std::nullopt;
  ++changes_;
  return ModeChoice::Change{
      is_apart ? kSynchronousMode : kLocalMode, to_text(answer),
      is_apart ? "all do every step together" : "pipeline replicas go under local updates"};
}

}  // namespace skein::plans
