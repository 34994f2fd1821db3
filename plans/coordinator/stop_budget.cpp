#include "plans/coordinator/stop_budget.hpp"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "plans/base/units.hpp"

namespace skein::plans {
namespace {

/// The least that a step gets, also one that nobody knows anything of.
constexpr double kStepLeastUs = 1.2 * kMicrosecondsPerSecond;
/// Whoever asks a run to stop does not wait for longer steps.
constexpr double kStepMostUs = 20 * kMicrosecondsPerSecond;
constexpr double kStepFactor = 1.5;
constexpr double kCheckpointFactor = 4;
constexpr double kCheckpointLeastUs = 5 * kMicrosecondsPerSecond;
constexpr double kCheckpointUnknownUs = 60 * kMicrosecondsPerSecond;

double left_us(const StopMeasures& measures) {
  return std::max(0.0, measures.step_us - measures.elapsed_us);
}

double tenths(double us) { return std::round(us / kMicrosecondsPerSecond * 10) / 10; }

}  // namespace

StopBudget make_stop_budget(const StopMeasures& measures) {
  StopBudget budget;
  budget.abandons = left_us(measures) > kStepMostUs;
  if (!budget.abandons) {
    budget.step_us = std::clamp(kStepFactor * left_us(measures), kStepLeastUs, kStepMostUs);
  }
  const double checkpoint_us =
      measures.checkpoint_us > 0
          ? std::max(kCheckpointLeastUs, kCheckpointFactor * measures.checkpoint_us)
          : kCheckpointUnknownUs;
  // A step that is abandoned takes a change of plan, for which workers have a lease.
  budget.total_us = budget.step_us + measures.lease_us + checkpoint_us;
  return budget;
}

std::string to_text(const StopMeasures& measures, const StopBudget& budget) {
  std::string text = "the step in progress ";
  if (budget.abandons) {
    absl::StrAppend(&text, "would take ", tenths(left_us(measures)), " s more and is abandoned");
  } else if (measures.step_us > 0) {
    absl::StrAppend(&text, "should end in ", tenths(left_us(measures)), " s");
  } else {
    absl::StrAppend(&text, "gets ", tenths(budget.step_us), " s");
  }
  if (measures.checkpoint_us > 0) {
    absl::StrAppend(&text, ", a checkpoint takes ", tenths(measures.checkpoint_us), " s");
  }
  return absl::StrCat(text, "; given up after ", tenths(budget.total_us), " s");
}

}  // namespace skein::plans
