#include "plans/modes/planned_mode_choice.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "plans/base/units.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/plan/pipeline_plan.hpp"
#include "plans/sync/policy_kind.hpp"

namespace skein::plans {
namespace {

constexpr uint64_t kStepsBetweenLooks = 8, kStepsBetweenLooksMax = 512;
/// Of fewer steps a mode may be better than predicted, not worse: the first ones are often slow.
constexpr uint64_t kStepsSure = 16;

ChangePatience patience_after(uint32_t changes, int32_t wishes = 0) {
  ChangePatience::Options options;
  options.steps_first = steps_after_changes(kStepsBetweenLooks, changes);
  options.steps_max = kStepsBetweenLooksMax;
  options.wishes = wishes;
  return ChangePatience(options);
}

}  // namespace

PlannedModeChoice::PlannedModeChoice(const JobSpec& job, bool is_planned)
    : may_change_(is_planned && chooses_mode(job)), patience_(patience_after(changes_)) {
  if (!may_change_) return;
  iterations_of_step_ = static_cast<double>(job.training.global_batch_size) /
                        static_cast<double>(pipeline_samples(job));
}

void PlannedModeChoice::begin_generation(const Plan& plan) {
  std::set<WorkerId> workers = plan_workers(plan);
  const bool goes_on = plan.mode == mode_ && workers == workers_;
  mode_ = plan.mode;
  spans_.clear();
  const auto known = measured_.find(mode_);
  if (known != measured_.end() && known->second.workers != workers) measured_.erase(known);
  workers_ = std::move(workers);
  patience_ = patience_after(changes_, goes_on ? patience_.wishes() : 0);
  next_look_ = patience_.steps_between_looks();
}

void PlannedModeChoice::forget_without(const std::set<WorkerId>& members) {
  std::erase_if(measured_, [&](const auto& each) {
    const std::set<WorkerId>& workers = each.second.workers;
    return !std::includes(members.begin(), members.end(), workers.begin(), workers.end());
  });
}

void PlannedModeChoice::on_commit(uint64_t steps_done, double step_us) {
  if (!may_change_) return;
  spans_.push_back({steps_done, step_us});
  while (spans_.size() > 2 && spans_[1].steps_done + RecentSteps::kKept <= steps_done) {
    spans_.pop_front();
  }
}

double PlannedModeChoice::bias_of(const std::string& mode) const {
  const auto found = measured_.find(mode);
  return found == measured_.end() ? 1 : found->second.bias;
}

double PlannedModeChoice::measured_per_second() const {
  double steps = 0, sum_us = 0;
  for (size_t i = 1; i < spans_.size(); ++i) {
    const auto own = static_cast<double>(spans_[i].steps_done - spans_[i - 1].steps_done);
    steps += own;
    sum_us += own * spans_[i].step_us;
  }
  return sum_us > 0 ? iterations_of_step_ * steps * kMicrosecondsPerSecond / sum_us : 0;
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
  const double measured = measured_per_second();
  const double predicted = is_apart ? answer.apart_per_second : answer.together_per_second;
  if (measured > 0 && predicted > 0) {
    const bool is_sure = spans_.back().steps_done - spans_.front().steps_done >= kStepsSure;
    const double bias = measured / predicted;
    Measured& known = measured_[mode_];
    // What a few steps of a new plan seem to say is no better than what many of the last one said.
    if (is_sure || !known.is_sure) {
      known = {is_sure ? bias : std::max(1.0, bias), workers_, is_sure};
    }
  }
  const double apart = answer.apart_per_second * bias_of(kLocalMode) * answer.apart_worth;
  const double together = answer.together_per_second * bias_of(kSynchronousMode);
  look_text_ = absl::StrFormat(
      "progress a second apart, with overlapped averages: %.4g iterations; all together: %.4g; %s",
      apart, together, answer.reason);
  if (measured > 0) {
    absl::StrAppendFormat(&look_text_, "; now there are %.4g, where %.4g were predicted", measured,
                          predicted);
  }
  const double now = is_apart ? apart : together;
  const double then = is_apart ? together : apart;
  const bool is_time = patience_.on_look(now, now == 0 ? 0 : then);
  const uint64_t spacing = patience_.steps_between_looks();
  next_look_ = last_look_ + (patience_.wishes() > 0 ? spacing / 2 : spacing);
  if (!is_time) return std::nullopt;
  ++changes_;
  return ModeChoice::Change{
      is_apart ? kSynchronousMode : kLocalMode, look_text_,
      is_apart ? "all do every step together" : "pipeline replicas go under local updates"};
}

}  // namespace skein::plans
