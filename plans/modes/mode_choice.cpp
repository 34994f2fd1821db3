#include "plans/modes/mode_choice.hpp"

#include <algorithm>

#include "plans/plan/pipeline_plan.hpp"
#include "plans/sync/policy_kind.hpp"

namespace skein::plans {

ModeChoice::ModeChoice(const JobSpec& job, bool is_planned)
    : job_(job), may_change_(!is_planned && chooses_mode(job)) {}

void ModeChoice::begin_generation(const Plan& plan) {
  if (watch_) added_us_ = watch_->added_us();
  watch_.reset();
  if (!may_change_ || !has_pipelines(plan)) return;
  const auto local_steps = static_cast<uint64_t>(job_.sync.local_steps);
  SyncWatchOptions options;
  options.chooser.is_adaptive = job_.optimizer.name == "adamw";
  options.local_steps = {local_steps};
  options.steps_left_out = 1;
  options.added_us = added_us_;
  uint64_t& first = options.chooser.patience.steps_first;
  first = steps_after_changes(first, changes_);
  const SyncCandidate now{plan.mode == kLocalMode ? local_steps : 0};
  watch_.emplace(pipeline_layout(plan), options, now);
}

std::optional<PolicyQuestion> ModeChoice::on_commit(const ModeTimings& timings, double commit_us) {
  if (!watch_) return std::nullopt;
  uint64_t slowest_us = 0;
  for (const ModeTimings::Pass& pass : timings.passes) {
    watch_->on_step(pass.pipeline_replica, pass.step_us);
    slowest_us = std::max(slowest_us, pass.step_us);
  }
  if (!timings.step_reports.empty()) {
    const double added_us = std::max(0.0, commit_us - static_cast<double>(slowest_us));
    watch_->on_added(static_cast<uint64_t>(added_us));
  }
  std::optional<StragglerProfile> profile = watch_->due();
  if (!profile) return std::nullopt;
  return PolicyQuestion{*std::move(profile), watch_->chooser().candidates(),
                        watch_->chooser().options()};
}

std::optional<ModeChoice::Change> ModeChoice::on_answer(const PolicyAnswer& answer) {
  if (!watch_) return std::nullopt;
  const std::optional<SyncChoice> choice = watch_->on_choice(answer.choice);
  if (!choice) return std::nullopt;
  ++changes_;
  const bool apart = choice->candidate.runs_pipelines();
  return Change{apart ? kLocalMode : kSynchronousMode, choice->reason,
                apart ? "pipeline replicas go under local updates" : "all do every step together"};
}

}  // namespace skein::plans
