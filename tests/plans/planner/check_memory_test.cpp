#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner_requests.hpp"
#include "plans/planner/candidate_schedule.hpp"
#include "plans/planner/plan_memory.hpp"

namespace skein::plans {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// Two stages of two layers on two of three devices of so many bytes, 4 micro-batches of 4 rows.
struct Small {
  PlanRequest request;
  Plan plan;

  explicit Small(int64_t memory_bytes, ScheduleKind kind = ScheduleKind::k1F1B) {
    LayerByHand layer;
    layer.parameter_bytes = 1000;  // State 4000.
    layer.stash_bytes = 500;
    layer.activation_bytes = 10;
    request = request_of(even_profile(4, layer), cluster_of({{1, 1, 1}}), 16, 4);
    CandidatePlan candidate;
    candidate.cuts = {0, 2, 4};
    candidate.rank_of_stage = {0, 1};
    candidate.ranks = {{{0}, {4}}, {{1}, {4}}};
    candidate.microbatch_rows = 4;
    candidate.schedule = kind;
    CostModel model(request, request.cluster);
    plan = plan_of(candidate, model).value();
    for (ClusterDevice& device : request.cluster.devices) device.memory_bytes = memory_bytes;
  }
  absl::Status check() const { return check_memory(plan, request.profile, request.cluster); }
};

TEST(CheckMemory, IsOkExactlyWhenAllFits) {
  // The first stage holds 8000 of state and two stashes of 2 * 500 * 4 rows.
  EXPECT_TRUE(Small(16'000).check().ok());
  const absl::Status status = Small(15'999).check();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), StartsWith("device 1 lacks 1 bytes"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("8000 for weights"));
  EXPECT_TRUE(Small(0).check().ok());  // No limit.
}

TEST(CheckMemory, OffersOnlyWhatHelps) {
  std::string text(Small(15'999).check().message());
  EXPECT_THAT(text, HasSubstr("recomputation"));
  EXPECT_THAT(text, HasSubstr("micro-batches of 2 rows (training.micro_batch_size)"));
  EXPECT_THAT(text, HasSubstr("3 stages of one device"));
  text = std::string(Small(9'000).check().message());  // Room for half a stash of one row.
  EXPECT_THAT(text, HasSubstr("; recomputation and micro-batches"));
  text = std::string(Small(3'999).check().message());  // Not even one layer's state.
  EXPECT_THAT(text, HasSubstr("use more devices, or devices with more memory"));
}

TEST(CheckMemory, SaysWhatIsSetAsideForGroupsOfGpus) {
  Small small(1);
  EXPECT_THAT(std::string(small.check().message()), HasSubstr("and has 1; neither"));
  for (ClusterDevice& device : small.request.cluster.devices) device.group_bytes = 1000;
  EXPECT_THAT(std::string(small.check().message()),
              HasSubstr("and has 1 (1000 bytes are set aside for groups of GPUs; comm.backend = "
                        "\"gloo\" needs none); neither"));
}

TEST(CheckMemory, OffersAnotherSchedule) {
  const Small small(17'000, ScheduleKind::kGPipe);
  EXPECT_THAT(std::string(small.check().message()), HasSubstr("the schedule 1F1B"));
}

TEST(CheckMemory, OfferedMitigationsAreTrue) {
  for (int64_t bytes = 4000; bytes < 16'000; bytes += 100) {
    Small small(bytes);
    const std::string text(small.check().message());
    Plan recomputed = small.plan;
    recomputed.recompute = true;
    const bool helps = lacking_bytes(recomputed, small.request.profile, small.request.cluster) <= 0;
    const bool offered = text.find("; recomputation or ") != std::string::npos ||
                         text.find("; recomputation would") != std::string::npos;
    EXPECT_EQ(offered, helps) << bytes << " bytes: " << text;
  }
}

TEST(CheckMemory, SeveralClaimsInFlightTakeOlderVersionsAndTheStashesOfTheirOrder) {
  // As with a flush, and a version of the first stage's block beside it: the other layer is none.
  for (const int64_t bytes : {16'999, 17'000}) {
    const Small small(bytes);
    const absl::Status status =
        check_memory(small.plan, small.request.profile, small.request.cluster, 2);
    EXPECT_EQ(status.ok(), bytes == 17'000) << status;
    if (status.ok()) continue;
    EXPECT_THAT(std::string(status.message()), HasSubstr("lacks 1 bytes"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("1000 for older versions of weights"));
  }
}

/// A worker that holds two stages allocates for each of them.
TEST(CheckMemory, WithSeveralClaimsInFlightEachStageOfAWorkerCounts) {
  Small small(0);
  for (StagePlan& stage : small.plan.stages) stage.replicas.front().worker = WorkerId{1};
  const std::vector<WorkerMemory> memories = plan_memory(small.plan, small.request.profile, 2);
  ASSERT_EQ(memories.size(), 1u);
  EXPECT_EQ(memories[0].state_bytes, 16'000);
  EXPECT_EQ(memories[0].stash_bytes, 2 * 4000 + 1 * (4000 + 40)) << "the last one has an input";
  EXPECT_EQ(memories[0].version_bytes, 1000) << "the last stage needs the newest weights only";
}

TEST(CheckMemory, RefusesAPlanForAnotherCluster) {
  Small small(0);
  small.request.cluster.devices.resize(1);
  EXPECT_EQ(small.check().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace skein::plans
