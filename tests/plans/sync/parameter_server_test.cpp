#include "plans/sync/parameter_server.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/plans/sync/random_pipelines.hpp"
#include "tests/plans/sync/server_recount.hpp"
#include "tests/support/cases.hpp"

namespace skein::plans {
namespace {

constexpr int kServerEvents = tests::cases(120'000);
constexpr PipelineLayout kLayout{6, 3};

struct ParameterServerRandom : testing::TestWithParam<ParameterServerOptions> {};

TEST_P(ParameterServerRandom, KeepsItsBoundAndNobodyWaitsForever) {
  const ParameterServerOptions options = GetParam();
  const bool is_synchronous = options.mode == ServerMode::kSynchronous;
  const auto policy = parameter_server(kLayout, options);
  RandomPipelines pipelines(*policy, kLayout, {.seed = 11 + options.bound});
  ServerRecount recount(kLayout, is_synchronous ? ServerRecount::Updates::kOfGroups
                                                : ServerRecount::Updates::kOfMembers);
  pipelines.on_change = [&](const MembershipChange& change) {
    if (change.joins) recount.join(change.pipeline);
  };
  pipelines.on_end = [&](const GroupStart& start, bool ok) { recount.end(start, ok); };
  pipelines.on_start = [&](const GroupStart& start) {
    if (start.average != Average::kServer || start.server != 0) pipelines.fail("no server");
    if (start.staleness != recount.push(start)) pipelines.fail("staleness miscounted");
    for (const GroupMember& member : start.members) {
      if (member.weight != 1.0 / pipelines.live_count()) pipelines.fail("weight");
    }
    if (options.mode == ServerMode::kAsynchronous && start.members.size() != 1) {
      pipelines.fail("asynchronous members do not wait for each other");
    }
  };
  pipelines.run(kServerEvents);
  pipelines.settle(30);
  EXPECT_EQ(pipelines.breach(), "");
  EXPECT_GT(pipelines.deaths(), tests::cases(50));
}

INSTANTIATE_TEST_SUITE_P(Modes, ParameterServerRandom,
                         testing::Values(ParameterServerOptions{ServerMode::kSynchronous},
                                         ParameterServerOptions{ServerMode::kAsynchronous},
                                         ParameterServerOptions{ServerMode::kBounded, 0},
                                         ParameterServerOptions{ServerMode::kBounded, 1},
                                         ParameterServerOptions{ServerMode::kBounded, 4}));

TEST(ParameterServer, SynchronousHasNoStaleness) {
  const auto policy = parameter_server(kLayout, {ServerMode::kSynchronous});
  RandomPipelines pipelines(*policy, kLayout,
                            {.seed = 4, .death_share = 0, .join_share = 0, .failure_share = 0});
  pipelines.on_start = [&](const GroupStart& start) {
    if (start.staleness != 0 || start.members.size() != kLayout.pipelines) pipelines.fail("stale");
  };
  pipelines.run(kServerEvents);
  EXPECT_EQ(pipelines.breach(), "");
  EXPECT_GT(pipelines.starts(), 1000u);
}

TEST(ParameterServer, BoundedStalenessStaysWithinItsBound) {
  for (const uint64_t bound : {0, 2, 6}) {
    const auto policy = parameter_server(kLayout, {ServerMode::kBounded, bound});
    RandomPipelines pipelines(*policy, kLayout,
                              {.seed = 4, .death_share = 0, .join_share = 0, .failure_share = 0});
    uint64_t staleness_max = 0;
    pipelines.on_start = [&](const GroupStart& start) {
      staleness_max = std::max(staleness_max, start.staleness);
      for (const GroupMember& member : start.members) {
        const uint32_t stage = kLayout.stage_of(member.replica);
        const uint32_t pipeline = kLayout.pipeline_of(member.replica);
        for (uint32_t other = 0; other < kLayout.pipelines; ++other) {
          if (pipelines.arrived(stage, pipeline) > pipelines.arrived(stage, other) + bound) {
            pipelines.fail("too far ahead");
          }
        }
      }
    };
    pipelines.run(kServerEvents);
    EXPECT_EQ(pipelines.breach(), "");
    EXPECT_LE(staleness_max, 2 * bound * (kLayout.pipelines - 1));
    EXPECT_GE(staleness_max, bound);
  }
}

TEST(ParameterServer, SynchronousGoesOnWithoutADeadPipeline) {
  const PipelineLayout layout{3, 1};
  const auto policy = parameter_server(layout, {ServerMode::kSynchronous});
  EXPECT_TRUE(policy->on_ready({{0}, 0}, 0).starts.empty());
  EXPECT_TRUE(policy->on_ready({{2}, 0}, 0).starts.empty());
  const GroupDecisions decisions = policy->on_membership({1, false}, 0);
  ASSERT_EQ(decisions.starts.size(), 1u);
  EXPECT_EQ(decisions.starts[0].members.size(), 2u);
  EXPECT_EQ(decisions.starts[0].members[0].weight, 0.5);
}

}  // namespace
}  // namespace skein::plans
