#include "plans/modes/synchronous_steps.hpp"

#include <algorithm>

#include "plans/base/check.hpp"
#include "plans/modes/step_totals.hpp"
#include "plans/plan/pipeline_plan.hpp"

namespace skein::plans {

SynchronousSteps::SynchronousSteps(const JobSpec& job, const Plan& plan)
    : plan_(plan), turns_(job.sharing.weight) {
  for (const StagePlan& stage : plan.stages) stages_.emplace_back(stage);
}

ModeDecisions SynchronousSteps::begin(uint64_t first_step, uint64_t end_step, uint64_t) {
  SKEIN_CHECK(!is_in_progress_ && end_step == first_step + 1) << "step " << first_step;
  step_ = first_step;
  is_in_progress_ = true;
  for (StageSync& stage : stages_) stage.expect_all(first_step);
  return {};
}

ModeOutcome SynchronousSteps::on_ready(WorkerId sender, const ReadyReport& report, uint64_t) {
  if (int64_t{report.replica.value} >= replica_count(plan_)) return Dropped{DropReason::kUnknown};
  if (!is_in_progress_) return Dropped{DropReason::kUnexpected};
  StageSync& stage = stages_[static_cast<size_t>(stage_of(plan_, report.replica))];
  if (const auto why = stage.on_ready(sender, report)) return Dropped{*why};
  turns_.on_report(report.turns);
  return try_complete();
}

ModeOutcome SynchronousSteps::on_reduced(WorkerId sender, ReplicaId replica, uint64_t step,
                                         double norm_squared, uint64_t) {
  if (int64_t{replica.value} >= replica_count(plan_)) return Dropped{DropReason::kUnknown};
  if (!is_in_progress_) return Dropped{DropReason::kUnexpected};
  StageSync& stage = stages_[static_cast<size_t>(stage_of(plan_, replica))];
  if (const auto why = stage.on_reduced(sender, replica, step, norm_squared)) return Dropped{*why};
  return try_complete();
}

ModeDecisions SynchronousSteps::try_complete() {
  ModeDecisions decisions;
  const bool all = std::all_of(stages_.begin(), stages_.end(),
                               [](const StageSync& stage) { return stage.is_complete(); });
  if (!all) return decisions;
  is_in_progress_ = false;
  last_timings_ = timings();
  decisions.completed = step_totals(plan_, stages_, step_ + 1);
  return decisions;
}

ModeTimings SynchronousSteps::timings() const {
  ModeTimings timings;
  for (size_t s = 0; s < stages_.size(); ++s) {
    for (const ReplicaPlan& replica : plan_.stages[s].replicas) {
      timings.step_reports[replica.id] = stages_[s].report(replica.id);
    }
  }
  if (!has_pipelines(plan_)) return timings;
  const PipelineLayout layout = pipeline_layout(plan_);
  for (uint32_t pipeline = 0; pipeline < layout.pipelines; ++pipeline) {
    uint64_t longest = 0;
    for (uint32_t stage = 0; stage < layout.stages; ++stage) {
      const ReadyReport& report = timings.step_reports.at(layout.replica(stage, pipeline));
      longest = std::max(longest, report.own_step_us());
    }
    timings.passes.push_back({pipeline, longest});
  }
  return timings;
}

bool SynchronousSteps::awaits(ReplicaId replica) const {
  return is_in_progress_ &&
         !stages_[static_cast<size_t>(stage_of(plan_, replica))].is_final(replica);
}

void SynchronousSteps::check_invariants() const {
  bool all = true;
  for (const StageSync& stage : stages_) {
    stage.check_invariants();
    SKEIN_CHECK(!stage.has_groups()) << "synchronous steps form no groups";
    all = all && stage.is_complete();
  }
  SKEIN_CHECK(!is_in_progress_ || !all) << "step " << step_ << " is complete";
}

}  // namespace skein::plans
