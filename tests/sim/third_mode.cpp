#include "tests/sim/third_mode.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plans/base/check.hpp"
#include "plans/coordinator/stage_sync.hpp"
#include "plans/elastic/replan.hpp"
#include "plans/worker/step_program.hpp"

namespace skein::sim {
namespace {

using plans::Dropped;
using plans::DropReason;
using plans::ModeDecisions;
using plans::ModeOutcome;

constexpr char kStageByStage[] = "stage_by_stage";

/// The coordinator's part: reports of all stages are kept until their stage's turn.
class StageByStage final : public plans::TrainingMode {
 public:
  explicit StageByStage(const plans::Plan& plan) : plan_(plan) {
    for (const plans::StagePlan& stage : plan.stages) stages_.emplace_back(stage);
  }

  ModeDecisions begin(uint64_t first_step, uint64_t end_step, uint64_t) override {
    SKEIN_CHECK(end_step == first_step + 1) << first_step;
    step_ = first_step;
    turn_ = 0;
    for (plans::StageSync& stage : stages_) stage.expect_all(first_step);
    return {};
  }
  ModeOutcome on_ready(plans::WorkerId sender, const plans::ReadyReport& report,
                       uint64_t) override {
    plans::StageSync* stage = stage_of(report.replica);
    if (stage == nullptr) return Dropped{DropReason::kUnknown};
    if (const auto why = stage->on_ready(sender, report)) return Dropped{*why};
    return try_complete();
  }
  ModeOutcome on_reduced(plans::WorkerId sender, plans::ReplicaId replica, uint64_t step,
                         double norm_squared, uint64_t) override {
    plans::StageSync* stage = stage_of(replica);
    if (stage == nullptr) return Dropped{DropReason::kUnknown};
    if (const auto why = stage->on_reduced(sender, replica, step, norm_squared)) {
      return Dropped{*why};
    }
    return try_complete();
  }
  bool leaves_commits_behind() const override { return true; }
  bool awaits(plans::ReplicaId replica) const override {
    return !stages_[static_cast<size_t>(plans::stage_of(plan_, replica))].is_final(replica);
  }
  plans::ModeTimings last_timings() const override { return {}; }
  void check_invariants() const override {
    for (const plans::StageSync& stage : stages_) stage.check_invariants();
    for (size_t s = 0; s < turn_; ++s) SKEIN_CHECK(stages_[s].is_complete()) << s;
  }

 private:
  plans::StageSync* stage_of(plans::ReplicaId replica) {
    if (int64_t{replica.value} >= plans::replica_count(plan_)) return nullptr;
    return &stages_[static_cast<size_t>(plans::stage_of(plan_, replica))];
  }

  ModeDecisions try_complete() {
    ModeDecisions decisions;
    if (turn_ == stages_.size()) return decisions;  // A late word of a step that is complete.
    while (turn_ < stages_.size() && stages_[turn_].is_complete()) ++turn_;
    if (turn_ < stages_.size()) return decisions;
    plans::CommitTotals& totals = decisions.completed.emplace();
    totals.end_step = step_ + 1;
    double norm_squared = 0;
    for (size_t s = 0; s < stages_.size(); ++s) {
      norm_squared += stages_[s].norm_squared();
      for (const plans::ReplicaPlan& replica : plan_.stages[s].replicas) {
        const plans::ReadyReport& report = stages_[s].report(replica.id);
        totals.loss_sum += report.loss_sum;
        totals.loss_tokens += report.loss_tokens;
        totals.snapshot_us = std::max(totals.snapshot_us, report.snapshot_us);
      }
      totals.stage_busy_seconds.push_back(0);
      totals.stage_stash_peak.push_back(0);
    }
    totals.gradient_norm = std::sqrt(norm_squared);
    return decisions;
  }

  plans::Plan plan_;
  std::vector<plans::StageSync> stages_;
  uint64_t step_ = 0;
  size_t turn_ = 0;  // Stages before it are complete.
};

/// The worker's part: a program of its own that does the steps of another one, and counts them.
class CountedProgram final : public plans::WorkerProgram {
 public:
  explicit CountedProgram(plans::ProgramOptions options)
      : first_step_(options.first_step), steps_(std::move(options)) {}

  plans::ProgramOutcome on_start(const plans::CommitOrder& left) override {
    return steps_.on_start(left);
  }
  plans::ProgramOutcome on_input(const plans::InputKey& key) override {
    return steps_.on_input(key);
  }
  plans::ProgramCommands on_work_done() override { return steps_.on_work_done(); }
  plans::ProgramOutcome on_group_reduced(plans::GroupId group, uint64_t step,
                                         int32_t bucket) override {
    return steps_.on_group_reduced(group, step, bucket);
  }
  plans::ProgramOutcome on_commit(const plans::CommitOrder& commit) override {
    plans::ProgramOutcome outcome = steps_.on_commit(commit);
    if (outcome.is_accepted()) ++commits_;
    return outcome;
  }
  std::optional<uint64_t> computed_step() const override { return steps_.computed_step(); }
  uint64_t first_sample(uint64_t step, int32_t microbatch,
                        const plans::RowRange& rows) const override {
    return steps_.first_sample(step, microbatch, rows);
  }
  uint64_t sample_count(uint64_t step) const override { return steps_.sample_count(step); }
  std::optional<uint64_t> awaited_commit() const override { return steps_.awaited_commit(); }
  uint64_t steps_done() const override { return steps_.steps_done(); }
  bool has_global_state() const override { return steps_.has_global_state(); }
  bool is_finished() const override { return steps_.is_finished(); }
  bool is_working() const override { return steps_.is_working(); }
  std::string activity() const override { return steps_.activity(); }
  void check_invariants() const override {
    steps_.check_invariants();
    SKEIN_CHECK(steps_.steps_done() <= first_step_ + commits_) << "a step without its commit";
  }

 private:
  uint64_t first_step_ = 0;
  uint64_t commits_ = 0;
  plans::StepProgram steps_;
};

absl::StatusOr<plans::PlannedPipeline> make_plan(const plans::ReplanRequest& request) {
  absl::StatusOr<plans::PlannedPipeline> chosen = plans::replan(request);
  if (chosen.ok()) chosen->plan.mode = kStageByStage;
  return chosen;
}

}  // namespace

const plans::ModeList& modes_with_third() {
  static const plans::ModeList modes = [] {
    plans::ModeList all = plans::training_modes();
    all.insert(all.begin(),
               {kStageByStage, [](const plans::JobSpec&) { return true; }, make_plan,
                [](const plans::JobSpec&,
                   const plans::Plan& plan) -> std::unique_ptr<plans::TrainingMode> {
                  return std::make_unique<StageByStage>(plan);
                },
                [](plans::ProgramOptions options) -> std::unique_ptr<plans::WorkerProgram> {
                  return std::make_unique<CountedProgram>(std::move(options));
                }});
    return all;
  }();
  return modes;
}

}  // namespace skein::sim
