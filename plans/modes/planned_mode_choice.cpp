#include "plans/modes/planned_mode_choice.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "plans/plan/pipeline_plan.hpp"
#include "plans/sync/policy_kind.hpp"

namespace skein::plans {
namespace {

constexpr double kGainMin = 1.05;  // What the other mode has to promise over the present one.
constexpr int32_t kPatience = 2;   // Looks in a row that have to say so.
constexpr uint64_t kStepsBetweenLooks = 8, kStepsBetweenLooksMax = 512;
constexpr uint32_t kDoublingsMax = 5;

}  // namespace

std::string to_text(const ModeAnswer& answer) {
  return absl::StrCat("progress a second apart, with overlapped averages: ",
                      absl::SixDigits(answer.apart_per_second),
                      " iterations; all together: ", absl::SixDigits(answer.together_per_second),
                      "; ", answer.reason);
}

PlannedModeChoice::PlannedModeChoice(const JobSpec& job, bool is_planned)
    : may_change_(is_planned && chooses_mode(job)) {}

void PlannedModeChoice::begin_generation(const Plan& plan) {
  mode_ = plan.mode;
  wishes_ = 0;
  // Who changes often does so ever more rarely, as each change costs something.
  between_looks_ = kStepsBetweenLooks << std::min(changes_, kDoublingsMax);
  next_look_ = 2 * between_looks_;
}

bool PlannedModeChoice::is_due(const RecentSteps& steps) {
  if (!may_change_ || steps.seen < next_look_ || steps.last.size() < kStepsBetweenLooks)
    return false;
  next_look_ = steps.seen + between_looks_;
  return true;
}

std::optional<ModeChoice::Change> PlannedModeChoice::on_answer(const ModeAnswer& answer) {
  const bool is_apart = mode_ == kLocalMode;
  const double now = is_apart ? answer.apart_per_second : answer.together_per_second;
  const double then = is_apart ? answer.together_per_second : answer.apart_per_second;
  if (now == 0 || then < kGainMin * now) {
    wishes_ = 0;
    between_looks_ = std::min(2 * between_looks_, kStepsBetweenLooksMax);
    return std::nullopt;
  }
  if (++wishes_ < kPatience) return std::nullopt;
  ++changes_;
  return ModeChoice::Change{
      is_apart ? kSynchronousMode : kLocalMode, to_text(answer),
      is_apart ? "all do every step together" : "pipeline replicas go under local updates"};
}

}  // namespace skein::plans
