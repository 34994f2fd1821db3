#include "plans/stragglers/straggler_remedy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "../planner/planner_requests.hpp"
#include "plans/elastic/keep_layers.hpp"
#include "plans/elastic/plan_difference.hpp"
#include "plans/planner/draft_schedule.hpp"
#include "plans/stragglers/remedy_candidates.hpp"

namespace skein::plans {
namespace {

using ::testing::HasSubstr;
using Kind = Remedy::Kind;

/// 1F1B on stages with these first layers and devices, rows as even as possible.
Plan straight_plan(const PlanRequest& request, std::vector<int64_t> cuts,
                   std::vector<std::vector<int32_t>> devices) {
  CostModel model(request, request.cluster);
  const PlanDraft draft =
      straight_draft(std::move(cuts), std::move(devices), request.microbatch_rows.back());
  return plan_of(draft, model).value();
}

/// 16 layers on four equal devices, one row per micro-batch, so that nothing can be replicated.
PlanRequest pipeline_request() {
  PlanRequest request = request_of(even_profile(16, {}), cluster_of({{1, 1, 1, 1}}), 16, 1);
  request.generation = 2;
  return request;
}
Plan pipeline_plan() {
  return straight_plan(pipeline_request(), {0, 4, 8, 12, 16}, {{0}, {1}, {2}, {3}});
}

/// Two stages of two replicas each, eight rows per micro-batch.
PlanRequest replicated_request() {
  PlanRequest request = request_of(even_profile(8, {}), cluster_of({{1, 1, 1, 1}}), 64, 8);
  request.microbatch_rows = {8};
  request.generation = 2;
  return request;
}
Plan replicated_plan() { return straight_plan(replicated_request(), {0, 4, 8}, {{0, 1}, {2, 3}}); }

RemedyOptions many_steps(std::vector<WorkerId> stragglers) {
  RemedyOptions options;
  options.stragglers = std::move(stragglers);
  options.steps_left = 1'000'000;
  return options;
}

RemedyOptions replanning(std::vector<WorkerId> stragglers) {
  RemedyOptions options = many_steps(std::move(stragglers));
  options.may_replan = true;
  return options;
}

void expect_good(const Remedy& remedy, const Plan& current, const PlanRequest& request) {
  const auto layers = static_cast<int64_t>(request.profile.layers.size());
  EXPECT_TRUE(validate(remedy.plan, layers, request.profile.tied_bytes > 0).ok()) << remedy.reason;
  EXPECT_DOUBLE_EQ(remedy.predicted_step_us, simulated_us(remedy.plan, request)) << remedy.reason;
  const double current_us = simulated_us(current, request);
  EXPECT_NEAR(remedy.gain, 1 - remedy.predicted_step_us / current_us, 1e-12) << remedy.reason;
  EXPECT_FALSE(remedy.reason.empty());
  const PlanDifference change = change_between(current, remedy.plan, request.profile);
  switch (remedy.kind) {
    case Kind::kNone:
      EXPECT_EQ(remedy.plan, current);
      break;
    case Kind::kSplitRows:
      EXPECT_EQ(change, PlanDifference{});
      break;
    case Kind::kMoveLayers:
      EXPECT_TRUE(change.leaving.empty());
      EXPECT_GT(change.moved_bytes, 0);
      break;
    case Kind::kDropWorker:
      EXPECT_FALSE(change.leaving.empty());
      break;
  }
  const bool is_new = remedy.kind != Kind::kNone;
  EXPECT_EQ(remedy.plan.generation, is_new ? request.generation : current.generation);
}

TEST(StragglerRemedy, MovesLayersAwayFromASlowStage) {
  const Plan current = pipeline_plan();
  for (uint32_t slow = 1; slow <= 4; ++slow) {
    for (const bool may_replan : {false, true}) {
      PlanRequest request = pipeline_request();
      request.cluster.devices[slow - 1].speed = 0.25;
      RemedyOptions options = many_steps({WorkerId{slow}});
      options.may_replan = may_replan;
      const Remedy remedy = choose_remedy(current, request, options).value();
      expect_good(remedy, current, request);
      EXPECT_EQ(remedy.kind, Kind::kMoveLayers) << remedy.reason;
      EXPECT_GT(remedy.gain, 0.5) << remedy.reason;
      for (const StagePlan& stage : remedy.plan.stages) {
        const bool is_slow = stage.replicas.front().worker.value == slow;
        EXPECT_TRUE(!is_slow || stage.layers.size() == 1) << remedy.reason;
      }
    }
  }
}

TEST(StragglerRemedy, SplitsRowsAnewWhereAReplicaIsSlowAndMovesNoLayer) {
  // Two stages of eight replicas with eight rows each: seven take over what one cannot do.
  PlanRequest request =
      request_of(even_profile(16, {}), cluster_of({std::vector<double>(16, 1)}), 512, 64);
  request.microbatch_rows = {64};
  request.generation = 2;
  const Plan current = straight_plan(request, {0, 8, 16},
                                     {{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}});
  for (const uint32_t slow : {1, 8, 13}) {
    PlanRequest changed = request;
    changed.cluster.devices[slow - 1].speed = 0.5;
    RemedyOptions options = many_steps({WorkerId{slow}});
    const Remedy remedy = choose_remedy(current, changed, options).value();
    expect_good(remedy, current, changed);
    EXPECT_EQ(remedy.kind, Kind::kSplitRows) << remedy.reason;
    EXPECT_GT(remedy.gain, 0.3) << remedy.reason;
    for (const StagePlan& stage : remedy.plan.stages) {
      for (const ReplicaPlan& replica : stage.replicas) {
        EXPECT_TRUE(replica.worker.value != slow || replica.rows.count <= 5) << remedy.reason;
      }
    }
  }
}

TEST(StragglerRemedy, PrefersRowsToLayersThatHelpLittleMore) {
  const Plan current = replicated_plan();
  PlanRequest request = replicated_request();
  request.cluster.devices[2].speed = 0.6;
  RemedyOptions options = many_steps({WorkerId{3}});
  options.slack = 0;  // Layers help 3.4% more than rows.
  EXPECT_EQ(choose_remedy(current, request, options).value().kind, Kind::kMoveLayers);
  options.slack = 0.05;
  const Remedy remedy = choose_remedy(current, request, options).value();
  expect_good(remedy, current, request);
  EXPECT_EQ(remedy.kind, Kind::kSplitRows) << remedy.reason;
  EXPECT_THAT(remedy.reason, HasSubstr("move layers: "));
}

TEST(StragglerRemedy, DropsAWorkerThatIsSlowerWithOneRowThanTheOthersWithAll) {
  PlanRequest request = request_of(even_profile(4, {}), cluster_of({{1, 1}}), 8, 2);
  request.microbatch_rows = {2};
  const Plan current = straight_plan(request, {0, 4}, {{0, 1}});
  request.cluster.devices[1].speed = 0.1;
  for (const bool may_replan : {false, true}) {
    RemedyOptions options = many_steps({WorkerId{2}});
    options.may_replan = may_replan;
    const Remedy remedy = choose_remedy(current, request, options).value();
    expect_good(remedy, current, request);
    EXPECT_EQ(remedy.kind, Kind::kDropWorker) << remedy.reason;
    EXPECT_EQ(change_between(current, remedy.plan, request.profile).leaving,
              std::vector<WorkerId>{WorkerId{2}});
  }
}

TEST(StragglerRemedy, GivesTheLayersOfADroppedStageToTheOthers) {
  const Plan current = pipeline_plan();
  PlanRequest request = pipeline_request();
  request.cluster.devices[1].speed = 0.01;
  RemedyOptions options = many_steps({WorkerId{2}});
  const Remedy remedy = choose_remedy(current, request, options).value();
  expect_good(remedy, current, request);
  EXPECT_EQ(remedy.kind, Kind::kDropWorker) << remedy.reason;
  EXPECT_EQ(remedy.plan.stages.size(), 3);
}

TEST(StragglerRemedy, DoesNothingAboutATinySlowdown) {
  const Plan current = pipeline_plan();
  PlanRequest request = pipeline_request();
  request.cluster.devices[2].speed = 0.97;
  const Remedy remedy = choose_remedy(current, request, replanning({WorkerId{3}})).value();
  expect_good(remedy, current, request);
  EXPECT_EQ(remedy.kind, Kind::kNone) << remedy.reason;
  EXPECT_THAT(remedy.reason, HasSubstr("% is asked for"));
}

TEST(StragglerRemedy, DoesNothingWhenTooFewStepsAreLeftToEarnThePauseBack) {
  const Plan current = pipeline_plan();
  PlanRequest request = pipeline_request();
  request.cluster.devices[2].speed = 0.25;
  RemedyOptions options = many_steps({WorkerId{3}});
  for (const uint64_t few : {0, 1, 5}) {
    options.steps_left = few;
    const Remedy remedy = choose_remedy(current, request, options).value();
    expect_good(remedy, current, request);
    EXPECT_EQ(remedy.kind, Kind::kNone) << remedy.reason;
    EXPECT_THAT(remedy.reason, HasSubstr("are left"));
  }
}

TEST(StragglerRemedy, TakesTheCheaperRemedyWhenMovingStateIsDear) {
  // Rows help a little at once; layers help more, but state of 4 MB would travel for an hour.
  PlanRequest request = replicated_request();
  const Plan current = replicated_plan();
  request.cluster.devices[0].speed = 0.4;
  RemedyOptions options = many_steps({WorkerId{1}});
  options.move = {.bytes_per_second = 100, .fixed_us = 1000};
  options.steps_left = 1000;
  const Remedy remedy = choose_remedy(current, request, options).value();
  expect_good(remedy, current, request);
  EXPECT_EQ(remedy.kind, Kind::kSplitRows) << remedy.reason;
}

TEST(StragglerRemedy, KeepsListsWrittenByHand) {
  PlanRequest request = pipeline_request();
  Plan current = pipeline_plan();
  current.schedule = ScheduleKind::kCustom;
  request.cluster.devices[3].speed = 0.25;
  RemedyOptions options = many_steps({});
  const Remedy remedy = choose_remedy(current, request, options).value();
  expect_good(remedy, current, request);
  EXPECT_EQ(remedy.kind, Kind::kMoveLayers) << remedy.reason;
  EXPECT_EQ(remedy.plan.actions, current.actions);
}

TEST(StragglerRemedy, TakesAWorkerThatHasRecoveredBackIn) {
  PlanRequest request = pipeline_request();
  const Plan current = straight_plan(request, {0, 6, 11, 16}, {{0}, {1}, {3}});
  const Remedy remedy = choose_remedy(current, request, replanning({})).value();
  expect_good(remedy, current, request);
  EXPECT_EQ(remedy.kind, Kind::kMoveLayers) << remedy.reason;
  EXPECT_EQ(change_between(current, remedy.plan, request.profile).joining,
            std::vector<WorkerId>{WorkerId{3}});
}

/// Whatever the plan, the cluster and the slowdown.
TEST(StragglerRemedy, NeverPredictsALongerRestOfTheRun) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    PlanRequest request = random_request(seed);
    const absl::StatusOr<PlannedPipeline> made = planners().front().make_plan(request);
    if (!made.ok()) continue;
    const size_t slow = seed % request.cluster.devices.size();
    request.cluster.devices[slow].speed *= seed % 2 == 0 ? 0.25 : 0.6;
    request.generation = 2;
    RemedyOptions options = many_steps({WorkerId{static_cast<uint32_t>(slow) + 1}});
    options.may_replan = seed % 3 != 0;
    options.steps_left = seed % 5 == 0 ? 100 : 100'000;
    options.move = {.bytes_per_second = 1e7, .fixed_us = 1e5};
    const absl::StatusOr<Remedy> remedy = choose_remedy(made->plan, request, options);
    ASSERT_TRUE(remedy.ok()) << seed << " " << remedy.status();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    expect_good(*remedy, made->plan, request);
    const auto steps = static_cast<double>(options.steps_left);
    EXPECT_LE(remedy->move_us + steps * remedy->predicted_step_us,
              steps * simulated_us(made->plan, request) * (1 + 1e-12));
  }
}

TEST(PlanDifference, CountsTheStateOfLayersThatAWorkerDidNotHold) {
  const PlanRequest request = pipeline_request();
  const Plan before = pipeline_plan();
  const Plan after = straight_plan(request, {0, 5, 8, 16}, {{0}, {1}, {3}});
  // Layer 4 goes to worker 1, layers 8 to 11 to worker 4; weights and two moments of 100 kB each.
  EXPECT_EQ(change_between(before, after, request.profile),
            (PlanDifference{5 * 3 * 100'000, {}, {WorkerId{3}}}));
  EXPECT_EQ(change_between(before, before, request.profile), PlanDifference{});
}

TEST(KeepLayers, RenamesAlikeWorkersSoThatLayersStay) {
  const PlanRequest request = pipeline_request();
  const Plan current = pipeline_plan();
  const Plan reversed = straight_plan(request, {0, 4, 8, 12, 16}, {{3}, {2}, {1}, {0}});
  EXPECT_EQ(with_layers_kept(reversed, current, request.profile, request.cluster), current);
  ClusterSpec unlike = request.cluster;
  unlike.devices[0].speed = 0.5;  // It stays where it is; the others come as close as they can.
  const Plan kept = with_layers_kept(reversed, current, request.profile, unlike);
  EXPECT_EQ(kept.stages[3].replicas[0].worker, WorkerId{1});
  EXPECT_EQ(kept.stages[1].replicas[0].worker, WorkerId{2});
  EXPECT_EQ(kept.stages[2].replicas[0].worker, WorkerId{3});
}

TEST(KeepLayers, GivesAValidPlanThatMovesNoMoreForAnyPlans) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    PlanRequest request = random_request(seed);
    for (ClusterDevice& device : request.cluster.devices) device.speed = 1;
    const absl::StatusOr<PlannedPipeline> before = planners().front().make_plan(request);
    request.cluster.devices[0].speed = 0.4;
    const absl::StatusOr<PlannedPipeline> after = planners().front().make_plan(request);
    if (!before.ok() || !after.ok()) continue;
    const Plan kept = with_layers_kept(after->plan, before->plan, request.profile, request.cluster);
    const auto layers = static_cast<int64_t>(request.profile.layers.size());
    EXPECT_TRUE(validate(kept, layers, request.profile.tied_bytes > 0).ok()) << seed;
    EXPECT_LE(change_between(before->plan, kept, request.profile).moved_bytes,
              change_between(before->plan, after->plan, request.profile).moved_bytes)
        << seed;
  }
}

TEST(NearbyPlans, KeepTheScheduleAndTheDevicesOfTheStages) {
  PlanRequest request = replicated_request();
  request.microbatch_rows = {4, 8, 16};
  request.schedules = {ScheduleKind::k1F1B, ScheduleKind::kZBH1};
  request.cluster.devices[0].speed = 0.3;
  const Plan current = replicated_plan();
  const std::vector<RemedyCandidate> plans = nearby_plans(current, request, {});
  EXPECT_FALSE(plans.empty());
  for (const RemedyCandidate& candidate : plans) {
    EXPECT_EQ(candidate.plan.schedule, current.schedule);
    EXPECT_NE(candidate.plan, current);
    const PlanDraft draft = draft_of(candidate.plan);
    EXPECT_EQ(draft.ranks[0].devices, (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(draft.ranks[1].devices, (std::vector<int32_t>{2, 3}));
  }
}

TEST(StragglerRemedy, SaysWhatIsWrongWithItsInput) {
  const PlanRequest request = pipeline_request();
  const Plan current = pipeline_plan();
  auto message = [&](const Plan& plan, const PlanRequest& asked, const RemedyOptions& options) {
    const absl::Status status = choose_remedy(plan, asked, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  PlanRequest fewer = request;
  fewer.cluster.devices.pop_back();
  EXPECT_THAT(message(current, fewer, {}), HasSubstr("worker 4"));
  PlanRequest larger = request;
  larger.global_batch_rows = 32;
  EXPECT_THAT(message(current, larger, {}), HasSubstr("16 rows per step"));
  Plan broken = current;
  broken.stages.pop_back();
  EXPECT_THAT(message(broken, request, {}), HasSubstr("the plan is broken"));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(message(current, request, {.move = {.bytes_per_second = 0}}),
              HasSubstr("move.bytes_per_second = 0"));
  EXPECT_THAT(message(current, request, {.move = {.fixed_us = nan}}), HasSubstr("move.fixed_us"));
  EXPECT_THAT(message(current, request, {.gain_min = 1}), HasSubstr("gain_min = 1"));
  EXPECT_THAT(message(current, request, {.slack = -1}), HasSubstr("slack = -1"));
}

}  // namespace
}  // namespace skein::plans
