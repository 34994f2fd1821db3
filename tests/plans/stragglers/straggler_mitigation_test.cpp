#include "plans/stragglers/straggler_mitigation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "../planner/planner_requests.hpp"
#include "plans/elastic/keep_layers.hpp"
#include "plans/elastic/plan_difference.hpp"
#include "plans/planner/candidate_schedule.hpp"
#include "plans/stragglers/mitigation_candidates.hpp"
#include "tests/support/cases.hpp"

namespace skein::plans {
namespace {

using ::testing::HasSubstr;
using Kind = Mitigation::Kind;

/// 1F1B on stages with these first layers and devices, rows as even as possible.
Plan straight_plan(const PlanRequest& request, std::vector<int64_t> cuts,
                   std::vector<std::vector<int32_t>> devices) {
  CostModel model(request, request.cluster);
  const CandidatePlan candidate =
      straight_candidate_plan(std::move(cuts), std::move(devices), request.microbatch_rows.back());
  return plan_of(candidate, model).value();
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

MitigationOptions many_steps(std::vector<WorkerId> stragglers) {
  MitigationOptions options;
  options.stragglers = std::move(stragglers);
  options.steps_left = 1'000'000;
  return options;
}

MitigationOptions replanning(std::vector<WorkerId> stragglers) {
  MitigationOptions options = many_steps(std::move(stragglers));
  options.may_replan = true;
  return options;
}

void expect_good(const Mitigation& mitigation, const Plan& current, const PlanRequest& request) {
  const auto layers = static_cast<int64_t>(request.profile.layers.size());
  EXPECT_TRUE(validate(mitigation.plan, layers, request.profile.tied_bytes > 0).ok())
      << mitigation.reason;
  EXPECT_DOUBLE_EQ(mitigation.predicted_step_us, simulated_us(mitigation.plan, request))
      << mitigation.reason;
  const double current_us = simulated_us(current, request);
  EXPECT_NEAR(mitigation.gain, 1 - mitigation.predicted_step_us / current_us, 1e-12)
      << mitigation.reason;
  EXPECT_FALSE(mitigation.reason.empty());
  const PlanDifference change = change_between(current, mitigation.plan, request.profile);
  switch (mitigation.kind) {
    case Kind::kNone:
      EXPECT_EQ(mitigation.plan, current);
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
  const bool is_new = mitigation.kind != Kind::kNone;
  EXPECT_EQ(mitigation.plan.generation, is_new ? request.generation : current.generation);
}

TEST(StragglerMitigation, MovesLayersAwayFromASlowStage) {
  const Plan current = pipeline_plan();
  for (uint32_t slow = 1; slow <= 4; ++slow) {
    for (const bool may_replan : {false, true}) {
      PlanRequest request = pipeline_request();
      request.cluster.devices[slow - 1].speed = 0.25;
      MitigationOptions options = many_steps({WorkerId{slow}});
      options.may_replan = may_replan;
      const Mitigation mitigation = choose_mitigation(current, request, options).value();
      expect_good(mitigation, current, request);
      EXPECT_EQ(mitigation.kind, Kind::kMoveLayers) << mitigation.reason;
      EXPECT_GT(mitigation.gain, 0.5) << mitigation.reason;
      for (const StagePlan& stage : mitigation.plan.stages) {
        const bool is_slow = stage.replicas.front().worker.value == slow;
        EXPECT_TRUE(!is_slow || stage.layers.size() == 1) << mitigation.reason;
      }
    }
  }
}

TEST(StragglerMitigation, SplitsRowsAnewWhereAReplicaIsSlowAndMovesNoLayer) {
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
    MitigationOptions options = many_steps({WorkerId{slow}});
    const Mitigation mitigation = choose_mitigation(current, changed, options).value();
    expect_good(mitigation, current, changed);
    EXPECT_EQ(mitigation.kind, Kind::kSplitRows) << mitigation.reason;
    EXPECT_GT(mitigation.gain, 0.3) << mitigation.reason;
    for (const StagePlan& stage : mitigation.plan.stages) {
      for (const ReplicaPlan& replica : stage.replicas) {
        EXPECT_TRUE(replica.worker.value != slow || replica.rows.count <= 5) << mitigation.reason;
      }
    }
  }
}

TEST(StragglerMitigation, PrefersRowsToLayersThatHelpLittleMore) {
  const Plan current = replicated_plan();
  PlanRequest request = replicated_request();
  request.cluster.devices[2].speed = 0.6;
  MitigationOptions options = many_steps({WorkerId{3}});
  options.slack = 0;  // Layers help 3.4% more than rows.
  EXPECT_EQ(choose_mitigation(current, request, options).value().kind, Kind::kMoveLayers);
  options.slack = 0.05;
  const Mitigation mitigation = choose_mitigation(current, request, options).value();
  expect_good(mitigation, current, request);
  EXPECT_EQ(mitigation.kind, Kind::kSplitRows) << mitigation.reason;
  EXPECT_THAT(mitigation.reason, HasSubstr("move layers: "));
}

TEST(StragglerMitigation, DropsAWorkerThatIsSlowerWithOneRowThanTheOthersWithAll) {
  PlanRequest request = request_of(even_profile(4, {}), cluster_of({{1, 1}}), 8, 2);
  request.microbatch_rows = {2};
  const Plan current = straight_plan(request, {0, 4}, {{0, 1}});
  request.cluster.devices[1].speed = 0.1;
  for (const bool may_replan : {false, true}) {
    MitigationOptions options = many_steps({WorkerId{2}});
    options.may_replan = may_replan;
    const Mitigation mitigation = choose_mitigation(current, request, options).value();
    expect_good(mitigation, current, request);
    EXPECT_EQ(mitigation.kind, Kind::kDropWorker) << mitigation.reason;
    EXPECT_EQ(change_between(current, mitigation.plan, request.profile).leaving,
              std::vector<WorkerId>{WorkerId{2}});
  }
}

TEST(StragglerMitigation, GivesTheLayersOfADroppedStageToTheOthers) {
  const Plan current = pipeline_plan();
  PlanRequest request = pipeline_request();
  request.cluster.devices[1].speed = 0.01;
  MitigationOptions options = many_steps({WorkerId{2}});
  const Mitigation mitigation = choose_mitigation(current, request, options).value();
  expect_good(mitigation, current, request);
  EXPECT_EQ(mitigation.kind, Kind::kDropWorker) << mitigation.reason;
  EXPECT_EQ(mitigation.plan.stages.size(), 3);
}

TEST(StragglerMitigation, DoesNothingAboutATinySlowdown) {
  const Plan current = pipeline_plan();
  PlanRequest request = pipeline_request();
  request.cluster.devices[2].speed = 0.97;
  const Mitigation mitigation =
      choose_mitigation(current, request, replanning({WorkerId{3}})).value();
  expect_good(mitigation, current, request);
  EXPECT_EQ(mitigation.kind, Kind::kNone) << mitigation.reason;
  EXPECT_THAT(mitigation.reason, HasSubstr("% is asked for"));
}

TEST(StragglerMitigation, DoesNothingWhenTooFewStepsAreLeftToEarnThePauseBack) {
  const Plan current = pipeline_plan();
  PlanRequest request = pipeline_request();
  request.cluster.devices[2].speed = 0.25;
  MitigationOptions options = many_steps({WorkerId{3}});
  for (const uint64_t few : {0, 1, 5}) {
    options.steps_left = few;
    const Mitigation mitigation = choose_mitigation(current, request, options).value();
    expect_good(mitigation, current, request);
    EXPECT_EQ(mitigation.kind, Kind::kNone) << mitigation.reason;
    EXPECT_THAT(mitigation.reason, HasSubstr("are left"));
  }
}

TEST(StragglerMitigation, TakesTheCheaperMitigationWhenMovingStateIsDear) {
  // Rows help a little at once; layers help more, but state of 4 MB would travel for an hour.
  PlanRequest request = replicated_request();
  const Plan current = replicated_plan();
  request.cluster.devices[0].speed = 0.4;
  MitigationOptions options = many_steps({WorkerId{1}});
  options.move = {.bytes_per_second = 100, .fixed_us = 1000};
  options.steps_left = 1000;
  const Mitigation mitigation = choose_mitigation(current, request, options).value();
  expect_good(mitigation, current, request);
  EXPECT_EQ(mitigation.kind, Kind::kSplitRows) << mitigation.reason;
}

TEST(StragglerMitigation, KeepsListsWrittenByHand) {
  PlanRequest request = pipeline_request();
  Plan current = pipeline_plan();
  current.schedule = ScheduleKind::kCustom;
  request.cluster.devices[3].speed = 0.25;
  MitigationOptions options = many_steps({});
  const Mitigation mitigation = choose_mitigation(current, request, options).value();
  expect_good(mitigation, current, request);
  EXPECT_EQ(mitigation.kind, Kind::kMoveLayers) << mitigation.reason;
  EXPECT_EQ(mitigation.plan.actions, current.actions);
}

TEST(StragglerMitigation, TakesAWorkerThatHasRecoveredBackIn) {
  PlanRequest request = pipeline_request();
  const Plan current = straight_plan(request, {0, 6, 11, 16}, {{0}, {1}, {3}});
  const Mitigation mitigation = choose_mitigation(current, request, replanning({})).value();
  expect_good(mitigation, current, request);
  EXPECT_EQ(mitigation.kind, Kind::kMoveLayers) << mitigation.reason;
  EXPECT_EQ(change_between(current, mitigation.plan, request.profile).joining,
            std::vector<WorkerId>{WorkerId{3}});
}

/// Whatever the plan, the cluster and the slowdown.
TEST(StragglerMitigation, NeverPredictsALongerRestOfTheRun) {
  for (uint64_t seed = 1; seed <= tests::cases(40); ++seed) {
    PlanRequest request = random_request(seed);
    const absl::StatusOr<PlannedPipeline> made = planners().front().make_plan(request);
    if (!made.ok()) continue;
    const size_t slow = seed % request.cluster.devices.size();
    request.cluster.devices[slow].speed *= seed % 2 == 0 ? 0.25 : 0.6;
    request.generation = 2;
    MitigationOptions options = many_steps({WorkerId{static_cast<uint32_t>(slow) + 1}});
    options.may_replan = seed % 3 != 0;
    options.steps_left = seed % 5 == 0 ? 100 : 100'000;
    options.move = {.bytes_per_second = 1e7, .fixed_us = 1e5};
    const absl::StatusOr<Mitigation> mitigation = choose_mitigation(made->plan, request, options);
    ASSERT_TRUE(mitigation.ok()) << seed << " " << mitigation.status();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    expect_good(*mitigation, made->plan, request);
    const auto steps = static_cast<double>(options.steps_left);
    EXPECT_LE(mitigation->move_us + steps * mitigation->predicted_step_us,
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
  for (uint64_t seed = 1; seed <= tests::cases(40); ++seed) {
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
  const std::vector<MitigationCandidate> plans = nearby_plans(current, request, {});
  EXPECT_FALSE(plans.empty());
  for (const MitigationCandidate& candidate : plans) {
    EXPECT_EQ(candidate.plan.schedule, current.schedule);
    EXPECT_NE(candidate.plan, current);
    const CandidatePlan plan = candidate_of(candidate.plan);
    EXPECT_EQ(plan.ranks[0].devices, (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(plan.ranks[1].devices, (std::vector<int32_t>{2, 3}));
  }
}

TEST(StragglerMitigation, SaysWhatIsWrongWithItsInput) {
  const PlanRequest request = pipeline_request();
  const Plan current = pipeline_plan();
  auto message = [&](const Plan& plan, const PlanRequest& asked, const MitigationOptions& options) {
    const absl::Status status = choose_mitigation(plan, asked, options).status();
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
