#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "planner_requests.hpp"
#include "plans/planner/candidate_plan.hpp"

namespace skein::plans {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<PlannedPipeline> plan_by(const std::string& name, const PlanRequest& request) {
  for (const Planner& planner : planners()) {
    if (name == planner.name) return planner.make_plan(request);
  }
  return absl::NotFoundError(name);
}

/// Two hosts of four equal devices, twelve equal layers, micro-batches of eight rows.
PlanRequest even_request() {
  PlanRequest request =
      request_of(even_profile(12, {}), cluster_of({{1, 1, 1, 1}, {1, 1, 1, 1}}), 64, 8);
  request.microbatch_rows = {8};
  set_bandwidths(request.cluster, 1e10, 1e9);
  return request;
}

TEST(Planners, MakeValidPlansThatFit) {
  std::map<std::string, int> made_by;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const PlanRequest request = random_request(seed);
    const auto layers = static_cast<int64_t>(request.profile.layers.size());
    for (const Planner& planner : planners()) {
      const absl::StatusOr<PlannedPipeline> made = planner.make_plan(request);
      if (!made.ok()) {
        const bool known =
            absl::IsResourceExhausted(made.status()) || absl::IsInvalidArgument(made.status());
        EXPECT_TRUE(known) << made.status();
        continue;
      }
      ++made_by[planner.name];
      const Plan& plan = made->plan;
      const absl::Status status = validate(plan, layers, request.profile.tied_bytes > 0);
      EXPECT_TRUE(status.ok()) << planner.name << " seed " << seed << ": " << status;
      EXPECT_TRUE(check_memory(plan, request.profile, request.cluster).ok());
      EXPECT_EQ(plan.microbatch_rows * plan.microbatch_count, request.global_batch_rows);
      EXPECT_TRUE(request.may_recompute || !plan.recompute);
      EXPECT_FALSE(made->reason.empty());
      EXPECT_GT(made->objective_us, 0);
    }
  }
  for (const Planner& planner : planners()) EXPECT_GE(made_by[planner.name], 5) << planner.name;
}

TEST(Planners, GiveTheSamePlanForTheSameRequest) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const PlanRequest request = random_request(seed);
    for (const Planner& planner : planners()) {
      const absl::StatusOr<PlannedPipeline> first = planner.make_plan(request);
      const absl::StatusOr<PlannedPipeline> second = planner.make_plan(request);
      ASSERT_EQ(first.ok(), second.ok());
      if (!first.ok()) {
        EXPECT_EQ(first.status(), second.status());
        continue;
      }
      EXPECT_EQ(first->plan, second->plan) << planner.name;
      EXPECT_EQ(first->reason, second->reason);
      EXPECT_EQ(first->objective_us, second->objective_us);
    }
  }
}

TEST(Planners, OfEqualDevicesIgnoreSpeedsAndRowsBeyondTheFirst) {
  PlanRequest request = even_request();
  PlanRequest uneven = request;
  uneven.microbatch_rows = {8, 16};
  for (size_t d = 0; d < 4; ++d) {
    uneven.cluster.devices[d].speed = 0.5;
    uneven.cluster.devices[d + 4].speed = 1.5;
  }
  for (const char* name : {"dapple", "dapple_released", "pipedream", "straight", "two_stage"}) {
    EXPECT_EQ(plan_by(name, request)->plan, plan_by(name, uneven)->plan) << name;
  }
}

TEST(Straight, GivesEachDeviceAStage) {
  const Plan plan = plan_by("straight", even_request())->plan;
  EXPECT_EQ(plan.stages.size(), 8U);
  for (const StagePlan& stage : plan.stages) {
    EXPECT_EQ(stage.replicas.size(), 1U);
    EXPECT_LE(stage.layers.size(), 2);
  }
}

TEST(Straight, LeavesDevicesOutThatHaveNoLayer) {
  PlanRequest request = even_request();
  request.profile.layers.resize(3);
  EXPECT_EQ(plan_by("straight", request)->plan.stages.size(), 3U);
}

TEST(DataParallel, GivesEveryDeviceTheWholeModel) {
  const Plan plan = plan_by("data_parallel", even_request())->plan;
  ASSERT_EQ(plan.stages.size(), 1U);
  EXPECT_EQ(plan.stages[0].replicas.size(), 8U);
}

TEST(DataParallel, TakesTheFewestRowsThatSuffice) {
  PlanRequest request = even_request();
  request.microbatch_rows = {2, 4, 16, 32};
  EXPECT_EQ(plan_by("data_parallel", request)->plan.microbatch_rows, 16);
  request.microbatch_rows = {2, 4};
  const absl::Status status = plan_by("data_parallel", request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("at least 8 rows"));
}

TEST(Dapple, PrefersDataParallelismWhereWeightsAreSmall) {
  PlanRequest request = even_request();
  for (LayerProfile& layer : request.profile.layers) layer.parameter_bytes = 10;
  const Plan plan = plan_by("dapple", request)->plan;
  EXPECT_EQ(plan.stages.size(), 1U) << to_text(plan);
}

TEST(Dapple, CutsAtTheHostsWhereWeightsAreLarge) {
  PlanRequest request = even_request();
  for (LayerProfile& layer : request.profile.layers) layer.parameter_bytes = 20'000'000;
  set_bandwidths(request.cluster, 1e12, 1e9);
  const Plan plan = plan_by("dapple", request)->plan;
  ASSERT_GE(plan.stages.size(), 2U);
  for (const StagePlan& stage : plan.stages) {  // No all-reduce crosses the network.
    for (const ReplicaPlan& replica : stage.replicas) {
      EXPECT_EQ((replica.worker.value - 1) / 4, (stage.replicas[0].worker.value - 1) / 4);
    }
  }
}

TEST(Dapple, TakesPolicyPBWhereTransfersAreComparable) {
  PlanRequest request = even_request();
  for (LayerProfile& layer : request.profile.layers) layer.parameter_bytes = 20'000'000;
  set_bandwidths(request.cluster, 1e12, 1e9);
  request.schedules.push_back(ScheduleKind::k1F1BPB);
  EXPECT_EQ(plan_by("dapple", request)->plan.schedule, ScheduleKind::k1F1B);
  for (LayerProfile& layer : request.profile.layers) layer.activation_row_bytes = 50'000;
  EXPECT_EQ(plan_by("dapple", request)->plan.schedule, ScheduleKind::k1F1BPB);
  request.schedules = {ScheduleKind::k1F1B};
  EXPECT_EQ(plan_by("dapple", request)->plan.schedule, ScheduleKind::k1F1B);
}

TEST(PipeDream, MinimisesTheSlowestStage) {
  // One level, three devices, no transfer or reduction: the exact slowest block is known.
  PlanRequest request = request_of(even_profile(6, {}), cluster_of({{1, 1, 1}}), 12, 6);
  request.microbatch_rows = {6};
  const PlannedPipeline made = plan_by("pipedream", request).value();
  EXPECT_NEAR(made.objective_us, 2 * 6 * 300 * 6 / 3.0, 1);
}

TEST(TwoStage, IsTheBestBipartition) {
  PlanRequest request = even_request();
  const PlannedPipeline made = plan_by("two_stage", request).value();
  ASSERT_EQ(made.plan.stages.size(), 2U);
  EXPECT_GE(made.objective_us, plan_by("dapple", request)->objective_us - 1e-6);
}

TEST(Planners, AnswerBeyondTheirBudgets) {
  PlanRequest request = request_of(
      even_profile(200, {}), cluster_of(std::vector<std::vector<double>>(400, {1, 1})), 4096, 1024);
  for (const char* name : {"dapple", "dapple_released", "pipedream", "two_stage"}) {
    const absl::Status status = plan_by(name, request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("beyond its budget")) << name;
  }
}

TEST(Planners, ExplainWhatDoesNotFit) {
  PlanRequest request = even_request();
  for (ClusterDevice& device : request.cluster.devices) device.memory_bytes = 1000;
  for (const Planner& planner : planners()) {
    const absl::Status status = planner.make_plan(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << planner.name << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("lacks")) << planner.name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("memory")) << planner.name;
  }
}

TEST(ValidateRequest, NamesWhatIsWrong) {
  auto message = [](const std::function<void(PlanRequest&)>& spoil) {
    PlanRequest request = even_request();
    spoil(request);
    const absl::Status status = validate(request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    for (const Planner& planner : planners())
      EXPECT_EQ(planner.make_plan(request).status(), status);
    return std::string(status.message());
  };
  EXPECT_TRUE(validate(even_request()).ok());
  EXPECT_THAT(message([](auto& r) { r.global_batch_rows = 0; }), HasSubstr("global_batch_rows"));
  EXPECT_THAT(message([](auto& r) { r.microbatch_rows = {}; }), HasSubstr("microbatch_rows"));
  EXPECT_THAT(message([](auto& r) { r.microbatch_rows = {7}; }), HasSubstr("has 7"));
  EXPECT_THAT(message([](auto& r) { r.microbatch_rows = {8, 4}; }), HasSubstr("ascending"));
  EXPECT_THAT(message([](auto& r) { r.schedules = {}; }), HasSubstr("schedules"));
  EXPECT_THAT(message([](auto& r) { r.schedules = {ScheduleKind::kCustom}; }), HasSubstr("Custom"));
  EXPECT_THAT(message([](auto& r) { r.simulation.steps = 0; }), HasSubstr("simulation.steps"));
  EXPECT_THAT(message([](auto& r) { r.profile.layers.clear(); }), HasSubstr("layer"));
  EXPECT_THAT(message([](auto& r) { r.cluster.devices.clear(); }), HasSubstr("device"));
}

}  // namespace
}  // namespace skein::plans
