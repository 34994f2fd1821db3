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
  const double now = is_apart ? answer.apart : answer.together;
  const double then = is_apart ? answer.together : answer.apart;
  if (then < kGainMin * now) {
    wishes_ = 0;
    between_looks_ = std::min(2 * between_looks_, kStepsBetweenLooksMax);
    return std::nullopt;
  }
  if (++wishes_ < kPatience) return std::nullopt;
  ++changes_;
  const std::string why = absl::StrCat(
      "progress a second apart, with overlapped averages: ", absl::SixDigits(answer.apart),
      " iterations; all together: ", absl::SixDigits(answer.together), "; ", answer.reason);
  return ModeChoice::Change{
      is_apart ? kSynchronousMode : kLocalMode, why,
      is_apart ? "all do every step together" : "pipeline replicas go under local updates"};
}

}  // namespace skein::plans
