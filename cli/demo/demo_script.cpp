#include "cli/demo/demo_script.hpp"

#include <algorithm>

namespace skein::cli {
namespace {

// When things happen, in shares of the whole time.
constexpr double kKillShare = 0.40;
constexpr double kAddShare = 0.20;  // After the kill, and half of it after the recovery.
constexpr double kStopShare = 0.93;
/// Steps that a plan is to be seen with before the next fault action.
constexpr uint64_t kStepsShown = 3;
/// A machine so slow that the story is not over so long after its time does not see its end.
constexpr double kPatienceSeconds = 60;

}  // namespace

DemoScript::DemoScript(double seconds) : seconds_(seconds) {}

DemoAction DemoScript::next(const DemoState& state) {
  if (stopped_) return DemoAction::kNone;
  const bool shown = state.steps_of_plan >= kStepsShown;
  if (!killed_at_) {
    if (shown && state.seconds >= kKillShare * seconds_) {
      killed_at_ = state.seconds;
      generation_before_ = state.generation;
      return DemoAction::kKillWorker;
    }
  } else if (!recovered_) {
    recovered_ = shown && state.generation > generation_before_;
    if (recovered_) recovered_at_ = state.seconds;
  } else if (!added_at_) {
    const double due =
        std::max(*killed_at_ + kAddShare * seconds_, *recovered_at_ + kAddShare / 2 * seconds_);
    if (state.seconds >= due) {
      added_at_ = state.seconds;
      newest_before_ = state.newest_worker;
      return DemoAction::kAddWorker;
    }
  } else if (!grown_) {
    grown_ = shown && state.newest_worker > newest_before_;
  }
  const bool is_over = grown_ && state.seconds >= kStopShare * seconds_;
  if (!is_over && state.seconds < seconds_ + kPatienceSeconds) return DemoAction::kNone;
  stopped_ = true;
  return DemoAction::kStop;
}

}  // namespace skein::cli
