// A training mode that the product does not have: nothing of the product is changed for it, and
// the coordination runs it by the list that it is given.

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "plans/coordinator/stage_sync.hpp"
#include "plans/elastic/replan.hpp"
#include "plans/modes/mode_list.hpp"
#include "plans/plan/layout_plan.hpp"
#include "tests/plans/small_cluster.hpp"

namespace skein::plans {
namespace {

constexpr char kPairedMode[] = "paired";

/// Commits two steps at once: whoever is ready with the first one goes on with the second.
class PairedSteps final : public TrainingMode {
 public:
  explicit PairedSteps(const Plan& plan) : plan_(plan) {
    for (const StagePlan& stage : plan.stages) stages_.emplace_back(stage);
  }
  ModeDecisions begin(uint64_t first_step, uint64_t end_step, uint64_t) override {
    end_ = end_step;
    loss_ = 0;
    for (StageSync& stage : stages_) stage.expect_all(first_step);
    return {};
  }
  ModeOutcome on_ready(WorkerId sender, const ReadyReport& report, uint64_t) override {
    if (int64_t{report.replica.value} >= replica_count(plan_)) {
      return Dropped{DropReason::kUnknown};
    }
    StageSync& stage = stages_[static_cast<size_t>(stage_of(plan_, report.replica))];
    if (const auto why = stage.on_ready(sender, report)) return Dropped{*why};
    loss_ += report.loss_sum;
    tokens_ += report.loss_tokens;
    if (report.step + 1 < end_) {
      stage.expect(report.replica, report.step + 1);
      return ModeDecisions{};
    }
    for (const StageSync& each : stages_) {
      if (!each.is_complete()) return ModeDecisions{};
    }
    ModeDecisions done;
    done.completed.emplace();
    done.completed->end_step = end_;
    done.completed->loss_sum = loss_;
    done.completed->loss_tokens = tokens_;
    done.completed->stage_busy_seconds.resize(stages_.size());
    done.completed->stage_stash_peak.resize(stages_.size());
    return done;
  }
  uint64_t commit_steps() const override { return 2; }
  bool awaits(ReplicaId replica) const override {
    return !stages_[static_cast<size_t>(stage_of(plan_, replica))].is_final(replica);
  }
  ModeTimings last_timings() const override { return {}; }
  void check_invariants() const override {
    for (const StageSync& stage : stages_) stage.check_invariants();
  }

 private:
  Plan plan_;
  std::vector<StageSync> stages_;
  uint64_t end_ = 0;
  double loss_ = 0;
  uint64_t tokens_ = 0;
};

const ModeList& three_modes() {
  static const ModeList modes = [] {
    ModeList all = training_modes();
    all.insert(all.begin(),
               {kPairedMode, [](const JobSpec& job) { return job.sync.round_steps == 2; },
                [](const ReplanRequest& request) {
                  absl::StatusOr<PlannedPipeline> chosen = replan(request);
                  if (chosen.ok()) chosen->plan.mode = kPairedMode;
                  return chosen;
                },
                [](const JobSpec&, const Plan& plan) -> std::unique_ptr<TrainingMode> {
                  return std::make_unique<PairedSteps>(plan);
                }});
    return all;
  }();
  return modes;
}

Coordination::Options paired_options() {
  Coordination::Options options;
  options.job = small_job();
  options.job.training.steps = 6;
  options.job.sync.round_steps = 2;
  options.worker_count = 2;
  options.modes = &three_modes();
  return options;
}

TEST(ThirdMode, ItsPlansNameItAndItsCommitsAreItsOwn) {
  Cluster cluster(paired_options());
  cluster.start();
  ASSERT_EQ(cluster.coordination.plan()->mode, kPairedMode);
  const auto text = parse_plan(to_text(*cluster.coordination.plan()));
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->mode, kPairedMode);
  for (uint64_t step = 0; step < 6; step += 2) {
    cluster.ready(0, step);
    cluster.ready(0, step + 1);
    cluster.ready(1, step);
    const CoordinatorDecisions complete = cluster.ready(1, step + 1);
    ASSERT_NE(find<JournalCommit>(complete), nullptr);
    EXPECT_EQ(find<JournalCommit>(complete)->record.step, step + 1);
    EXPECT_EQ(find<JournalCommit>(complete)->record.first_sample, 4 * step);
    EXPECT_EQ(find<JournalCommit>(complete)->record.sample_count, 8u);
    const auto committed =
        cluster.decided(cluster.coordination.on_journaled(step + 1, ++cluster.now));
    EXPECT_NE(find<BroadcastCommit>(committed), nullptr);
  }
  EXPECT_EQ(cluster.coordination.phase(), Coordination::Phase::kEnded);
}

TEST(ThirdMode, ALossBetweenItsCommitsGoesBackToTheLastOneOfThem) {
  Cluster cluster(paired_options());
  cluster.start();
  for (uint64_t step : {0, 1}) cluster.ready(0, step);
  for (uint64_t step : {0, 1}) cluster.ready(1, step);
  cluster.decided(cluster.coordination.on_journaled(1, ++cluster.now));
  cluster.ready(0, 2);
  EXPECT_NE(find<QuiesceWorker>(cluster.lose(2)), nullptr);
  const CoordinatorDecisions assigned = cluster.quiesced(1, {{2, {0, 6}}});
  ASSERT_NE(find<AssignPlan>(assigned), nullptr);
  EXPECT_EQ(find<AssignPlan>(assigned)->plan.mode, kPairedMode);
  EXPECT_EQ(find<AssignPlan>(assigned)->restore.first_step, 2u);
  cluster.prepared(1);
  cluster.ready(0, 2);
  EXPECT_NE(find<JournalCommit>(cluster.ready(0, 3)), nullptr);
}

TEST(ThirdMode, OtherJobsHaveTheModesOfTheProduct) {
  Coordination::Options options = paired_options();
  options.job.sync.round_steps = 8;
  Cluster cluster(std::move(options));
  cluster.start();
  EXPECT_EQ(cluster.coordination.plan()->mode, kSynchronousMode);
}

}  // namespace
}  // namespace skein::plans
