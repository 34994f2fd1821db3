// What the coordination does with `sync.policy = "auto"`: plans with and without pipeline replicas.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "plans/plan/pipeline_plan.hpp"
#include "tests/plans/modes/pipeline_cluster.hpp"

namespace skein::plans {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kPipelines = 3;

JobSpec auto_job(const std::string& optimizer) {
  JobSpec job = pipeline_job(1, kPipelines, "auto");
  job.optimizer.name = optimizer;
  job.training.steps = 2000;
  job.sync.round_steps = 8;
  return job;
}

/// Three workers of one stage, whose first one may be slow.
struct AutoCluster : PipelineCluster {
  explicit AutoCluster(const std::string& optimizer) : AutoCluster(auto_job(optimizer)) {}
  explicit AutoCluster(const JobSpec& job) : PipelineCluster(job, kPipelines) {}

  void set_slowness(uint64_t slowness) { step_us[0] = slowness * step_us[1]; }
  /// Synchronous steps until the plan is quiesced; none if it is not for so many.
  std::optional<std::string> train(uint64_t steps) {
    std::optional<std::string> why;
    for (uint64_t i = 0; i < steps; ++i) {
      const uint64_t step = coordination.steps_done();
      set_stalls(step);
      for (uint32_t replica = 0; replica < kPipelines; ++replica) ready_pipeline(replica, step);
      now += step_over_busy * *std::max_element(step_us.begin(), step_us.end());
      const CoordinatorDecisions decisions = decided(coordination.on_journaled(step, now));
      if (!why) why = change_in(decisions);
      if (find<QuiesceWorker>(decisions)) return why;
    }
    return std::nullopt;
  }
  /// Synchronous steps while the planner does not answer; what it is asked.
  std::vector<RequestPlan> train_unanswered(uint64_t steps) {
    std::vector<RequestPlan> asked;
    const uint64_t end = coordination.steps_done() + steps;
    for (uint64_t step = coordination.steps_done(); step < end; ++step) {
      set_stalls(step);
      for (uint32_t replica = 0; replica < kPipelines; ++replica) ready_pipeline(replica, step);
      const CoordinatorDecisions decisions = decided(coordination.on_journaled(step, ++now));
      EXPECT_EQ(find<QuiesceWorker>(decisions), nullptr);
      for (const CoordinatorDecision& each : decisions) {
        if (const auto* request = std::get_if<RequestPlan>(&each)) asked.push_back(*request);
      }
    }
    return asked;
  }
  bool stalls_in_turn = false;
  uint64_t step_over_busy = 1;
  /// Rounds of pipeline replicas, likewise.
  std::optional<std::string> train_pipelines(CoordinatorDecisions todo, size_t decisions) {
    const CoordinatorDecisions all = run(std::move(todo), decisions);
    return find<QuiesceWorker>(all) ? change_in(all) : std::nullopt;
  }
  /// The plan that follows, and what it begins with.
  std::pair<Plan, CoordinatorDecisions> next_plan() {
    const auto assigned = all_quiesced(kPipelines, {{coordination.steps_done(), kAll}});
    const Plan plan = find<AssignPlan>(assigned)->plan;
    CoordinatorDecisions started;
    for (uint32_t id = 1; id <= kPipelines; ++id) append(started, prepared(id));
    return {plan, started};
  }

 private:
  void set_stalls(uint64_t step) {
    if (!stalls_in_turn) return;
    std::fill(step_us.begin(), step_us.end(), 1000);
    step_us[step % kPipelines] = 10'000;
  }
  static std::optional<std::string> change_in(const CoordinatorDecisions& decisions) {
    for (const CoordinatorDecision& each : decisions) {
      const auto* event = std::get_if<RunEvent>(&each);
      if (event != nullptr && event->name == "sync.changed") return event->text;
    }
    return std::nullopt;
  }
};

JobSpec planned_auto_job() {
  JobSpec job = auto_job("sgd");
  job.parallelism.pipeline_parallel_degree = kAutoDegree;
  return job;
}

TEST(CoordinationAuto, APlannedJobStaysTogetherWhileNothingDisturbs) {
  AutoCluster cluster(planned_auto_job());
  EXPECT_EQ(cluster.coordination.plan()->mode, kSynchronousMode);
  EXPECT_FALSE(cluster.train(500));
}

TEST(CoordinationAuto, APlannedJobIsLetGoWhereWorkersStallInTurn) {
  AutoCluster cluster(planned_auto_job());
  cluster.stalls_in_turn = true;
  cluster.step_over_busy = 16;  // Update and exchange, as is predicted of so small a model.
  const auto why = cluster.train(100);
  ASSERT_TRUE(why);
  EXPECT_THAT(*why, HasSubstr("progress a second apart"));
  EXPECT_LT(cluster.coordination.steps_done(), 30u) << "two looks";
  const auto [plan, started] = cluster.next_plan();
  EXPECT_EQ(plan.mode, kLocalMode);
  EXPECT_NE(find<ClaimSamples>(started), nullptr);
}

TEST(CoordinationAuto, APlannedJobTrainsOnWhileThePlannerThinksAboutTheMode) {
  AutoCluster cluster(planned_auto_job());
  cluster.plans_at_once = false;
  cluster.stalls_in_turn = true;
  const std::vector<RequestPlan> asked = cluster.train_unanswered(200);
  ASSERT_EQ(asked.size(), 1u) << "it is asked once";
  ASSERT_TRUE(std::holds_alternative<ModeQuestion>(asked.front().question->what));
  EXPECT_EQ(cluster.coordination.phase(), Coordination::Phase::kTraining);
  cluster.lose(3);
  const CoordinatorOutcome late = cluster.coordination.on_plan_ready(
      {asked.front().id, answer(*asked.front().question), 0}, ++cluster.now);
  EXPECT_EQ(late.decisions().size(), 0u) << "it was about a plan that is no more";
}

TEST(CoordinationAuto, BeginsWithoutPipelinesAndStaysSoWhileNothingDisturbs) {
  for (const char* optimizer : {"adamw", "sgd"}) {
    AutoCluster cluster(optimizer);
    EXPECT_FALSE(cluster.coordination.plan()->mode == kLocalMode);
    EXPECT_EQ(find<ClaimSamples>(cluster.begun), nullptr);
    for (uint64_t& each : cluster.step_us) each *= 10;  // As all is done for the first time.
    EXPECT_FALSE(cluster.train(1));
    for (uint64_t& each : cluster.step_us) each /= 10;
    EXPECT_FALSE(cluster.train(499));
    EXPECT_EQ(cluster.coordination.steps_done(), 500u);
  }
}

TEST(CoordinationAuto, LetsPipelinesGoForAStragglerAndTakesThemBackWhenItIsWell) {
  AutoCluster cluster("adamw");
  cluster.train(5);
  cluster.set_slowness(4);
  const auto loose = cluster.train(100);
  ASSERT_TRUE(loose);
  EXPECT_THAT(*loose, HasSubstr("slowest pipeline replica 4 times the fastest"));
  const uint64_t done = cluster.coordination.steps_done();
  const auto [pipelines, begun] = cluster.next_plan();
  EXPECT_TRUE(pipelines.mode == kLocalMode);
  EXPECT_EQ(cluster.coordination.steps_done(), done) << "no step is done again";
  ASSERT_NE(find<ClaimSamples>(begun), nullptr);
  EXPECT_EQ(find<ClaimSamples>(begun)->claim.first, 6 * done);

  cluster.set_slowness(1);
  const auto tight = cluster.train_pipelines(begun, 5000);
  ASSERT_TRUE(tight);
  EXPECT_THAT(*tight, HasSubstr("all-reduce of 2 policies"));
  const auto [together, none] = cluster.next_plan();
  EXPECT_FALSE(together.mode == kLocalMode);
  EXPECT_EQ(find<ClaimSamples>(none), nullptr);
  EXPECT_FALSE(cluster.train(50));
}

/// Apart from each other they see no reduction, and what it costs is not forgotten.
TEST(CoordinationAuto, LetsPipelinesGoForSlowLinksAndTakesThemNotBack) {
  AutoCluster cluster("adamw");
  cluster.step_over_busy = 4;
  ASSERT_TRUE(cluster.train(100));
  const auto [pipelines, begun] = cluster.next_plan();
  ASSERT_TRUE(pipelines.mode == kLocalMode);
  EXPECT_FALSE(cluster.train_pipelines(begun, 5000));
}

/// The plan that a coordinator with such a journal makes.
Plan plan_after(const std::string& policy, bool was_in_pipelines, bool is_planned = false) {
  JobSpec job = is_planned ? planned_auto_job() : auto_job("sgd");
  job.sync.policy = policy;
  Coordination::Options options{job, kPipelines};
  options.last_plan = make_pipeline_plan(job, {{1}, {2}, {3}}, 1).value();
  options.last_plan->mode = was_in_pipelines ? kLocalMode : kSynchronousMode;
  Cluster cluster(options);

  for (uint32_t id = 1; id <= kPipelines; ++id) cluster.join(id, id);
  for (uint32_t id = 1; is_planned && id <= kPipelines; ++id)
    cluster.decided(cluster.profiled(id, job));
  CoordinatorDecisions assigned;
  for (uint32_t id = 1; id <= kPipelines; ++id) append(assigned, cluster.quiesced(id));
  const AssignPlan* assign = find<AssignPlan>(assigned);
  return assign == nullptr ? Plan() : assign->plan;
}

/// Other policies may have been changed meanwhile: they say themselves what they want.
TEST(CoordinationAuto, ARestartGoesOnAsThePlanDid) {
  for (const bool in_pipelines : {false, true}) {
    const Plan plan = plan_after("auto", in_pipelines);
    ASSERT_FALSE(plan.stages.empty());
    EXPECT_EQ(plan.mode == kLocalMode, in_pipelines);
    const Plan planned = plan_after("auto", in_pipelines, /*is_planned=*/true);
    ASSERT_FALSE(planned.stages.empty());
    EXPECT_EQ(planned.mode == kLocalMode, in_pipelines);
    EXPECT_TRUE(plan_after("sdpipe", in_pipelines).mode == kLocalMode);
    EXPECT_FALSE(plan_after("allreduce", in_pipelines).mode == kLocalMode);
  }
}

}  // namespace
}  // namespace skein::plans
