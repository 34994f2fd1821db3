#include "plans/sync/grouped_server.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "plans/sync/progressive_server.hpp"
#include "tests/plans/sync/random_pipelines.hpp"
#include "tests/plans/sync/server_recount.hpp"
#include "tests/support/cases.hpp"

namespace skein::plans {
namespace {

constexpr int kEvents = tests::cases(150'000);
constexpr int kRounds = tests::cases(1000);

/// What every grouped server keeps.
void check(const GroupStart& start, ServerRecount& recount, RandomPipelines& pipelines) {
  if (start.average != Average::kServer) pipelines.fail("no server");
  if ((start.server > 0) != (start.members.size() > 1)) pipelines.fail("a server for one alone");
  if (start.staleness != recount.push(start)) pipelines.fail("staleness miscounted");
  for (const GroupMember& member : start.members) {
    if (member.weight != 1.0 / pipelines.live_count()) pipelines.fail("weight");
  }
}

void watch(RandomPipelines& pipelines, ServerRecount& recount) {
  pipelines.on_change = [&](const MembershipChange& change) {
    if (change.joins) recount.join(change.pipeline);
  };
  pipelines.on_end = [&](const GroupStart& start, bool ok) { recount.end(start, ok); };
  pipelines.on_start = [&](const GroupStart& start) { check(start, recount, pipelines); };
}

struct GroupedServerRandom : testing::TestWithParam<uint32_t> {};

TEST_P(GroupedServerRandom, NobodyWaitsForeverWhileGroupsChangeAndPipelinesComeAndGo) {
  const PipelineLayout layout{7, GetParam()};
  GroupedServerPolicy policy(layout, {0, 0, 1, 1, 1, 2, 2});
  RandomPipelines pipelines(policy, layout, {.seed = 21 + GetParam(), .death_share = 0.001});
  ServerRecount recount(layout, ServerRecount::Updates::kOfGroups);
  watch(pipelines, recount);
  Rng rng(8);
  int regroupings = 0;
  for (int round = 0; round < kRounds; ++round) {
    pipelines.run(kEvents / kRounds);
    const auto count = static_cast<int32_t>(1 + rng.below(5));
    PipelineGroups groups;
    for (uint32_t pipeline = 0; pipeline < layout.pipelines; ++pipeline) {
      groups.push_back(static_cast<int32_t>(rng.below(static_cast<uint64_t>(count))));
    }
    const bool was_regrouping = policy.is_regrouping();
    pipelines.apply(policy.regroup(groups));
    regroupings += was_regrouping ? 0 : 1;
  }
  pipelines.settle(30);
  EXPECT_EQ(pipelines.breach(), "");
  EXPECT_GT(pipelines.deaths(), tests::cases(30));
  EXPECT_GT(regroupings, kRounds * 3 / 10);
}

INSTANTIATE_TEST_SUITE_P(Stages, GroupedServerRandom, testing::Values(1u, 2u, 5u));

TEST(GroupedServer, AGroupTakesEveryStepTogetherAndTheSameOneAtEveryStage) {
  const PipelineLayout layout{6, 3};
  const PipelineGroups groups = {0, 1, 0, 1, 2, 2};
  GroupedServerPolicy policy(layout, groups);
  RandomPipelines pipelines(policy, layout,
                            {.seed = 2, .death_share = 0, .join_share = 0, .failure_share = 0});
  uint64_t staleness_max = 0;
  pipelines.on_start = [&](const GroupStart& start) {
    staleness_max = std::max(staleness_max, start.staleness);
    if (start.members.size() != 2) pipelines.fail("not the whole group");
    for (const GroupMember& member : start.members) {
      if (groups[layout.pipeline_of(member.replica)] + 1 != start.server)
        pipelines.fail("a stranger");
      if (member.step != start.members[0].step) pipelines.fail("another step");
    }
  };
  pipelines.run(kEvents);
  EXPECT_EQ(pipelines.breach(), "");
  EXPECT_GT(staleness_max, 2u);  // A slow group meets many updates of the others.
}

TEST(GroupedServer, EquallyFastGroupsAreGMinusOneUpdatesStale) {
  const PipelineLayout layout{4, 1};
  GroupedServerPolicy policy(layout, {0, 1, 2, 3});
  for (uint64_t step = 0; step < 5; ++step) {
    for (uint32_t pipeline = 0; pipeline < 4; ++pipeline) {
      const GroupDecisions decisions = policy.on_ready({{pipeline}, step}, 0);
      ASSERT_EQ(decisions.starts.size(), 1u);
      EXPECT_EQ(decisions.starts[0].staleness, step == 0 ? pipeline : 3);
      EXPECT_EQ(decisions.starts[0].server, 0);  // One alone meets the central one.
      EXPECT_EQ(decisions.starts[0].members[0].weight, 0.25);
      policy.on_group_end({decisions.starts[0].number, true}, 0);
    }
  }
}

TEST(GroupedServer, WithoutServersOfTheirOwnGroupsMeetTheCentralOne) {
  for (const bool has_group_servers : {true, false}) {
    GroupedServerPolicy policy({4, 1}, {0, 0, 1, 1}, has_group_servers);
    for (uint32_t pipeline = 0; pipeline < 4; ++pipeline) {
      const GroupDecisions decisions = policy.on_ready({{pipeline}, 0}, 0);
      ASSERT_EQ(decisions.starts.size(), pipeline % 2);
      if (decisions.starts.empty()) continue;
      EXPECT_EQ(decisions.starts[0].server,
                has_group_servers ? static_cast<int32_t>(pipeline / 2) + 1 : 0);
      EXPECT_EQ(decisions.starts[0].members.size(), 2u);
    }
  }
}

TEST(GroupedServer, WhoWasAwayComesBackToItsGroup) {
  GroupedServerPolicy policy({4, 1}, {0, 0, 1, 1});
  for (const uint32_t pipeline : {0u, 2u, 3u}) policy.on_membership({pipeline, false, 0}, 0);
  for (const uint32_t pipeline : {2u, 3u, 0u}) policy.on_membership({pipeline, true, 1}, 0);
  EXPECT_EQ(policy.groups(), (PipelineGroups{0, 0, 1, 1}));
}

TEST(ProgressiveServer, BeginsWithTheNumberOfGroupsThatIsGiven) {
  for (const auto& [count, groups] : std::map<int32_t, size_t>{{0, 1}, {1, 1}, {3, 3}, {9, 5}}) {
    const ProgressiveServerPolicy policy({5, 2}, {.regroup = {.group_count = count}});
    const PipelineGroups begun = policy.groups();
    EXPECT_EQ(std::set<int32_t>(begun.begin(), begun.end()).size(), groups) << count;
  }
}

TEST(ProgressiveServer, ALossThatRisesHalvesItsGroups) {
  const PipelineLayout layout{4, 1};
  ProgressiveServerPolicy policy(layout, {.regroup = {.group_count = 4, .loss_rise_max = 0.01}});
  const auto step = [&](uint64_t number) {
    for (uint32_t pipeline = 0; pipeline < 4; ++pipeline) {
      std::vector<uint64_t> started;
      for (const GroupStart& each : policy.on_ready({{pipeline}, number}, number + 1).starts) {
        started.push_back(each.number);
      }
      for (uint64_t each : started) policy.on_group_end({each, true}, number + 1);
    }
  };
  for (uint64_t number = 0; number < 3; ++number) step(number);
  policy.on_validation(2);
  policy.on_validation(3);
  for (uint64_t number = 3; number < 9; ++number) step(number);
  const PipelineGroups fewer = policy.groups();
  EXPECT_EQ(std::set<int32_t>(fewer.begin(), fewer.end()).size(), 2u);
}

TEST(GroupedServer, RegroupsAfterTheStepsThatAnyStageHasBegun) {
  const PipelineLayout layout{2, 2};
  GroupedServerPolicy policy(layout, {0, 0});
  const auto ready = [&](uint32_t stage, uint32_t pipeline, uint64_t step) {
    return policy.on_ready({layout.replica(stage, pipeline), step}, 0);
  };
  ready(1, 0, 0);
  ASSERT_EQ(ready(1, 1, 0).starts.size(), 1u);  // Stage 1 has begun step 0.
  EXPECT_TRUE(policy.regroup({0, 1}).starts.empty());
  EXPECT_TRUE(policy.is_regrouping());
  EXPECT_TRUE(ready(0, 0, 0).starts.empty());  // Stage 0 still does it together.
  EXPECT_EQ(ready(0, 1, 0).starts.size(), 1u);
  EXPECT_FALSE(policy.is_regrouping());
  policy.on_group_end({0, true}, 0);
  EXPECT_EQ(ready(1, 1, 1).starts.size(), 1u);  // The next one is alone.
}

struct ProgressiveServerRandom : testing::TestWithParam<uint32_t> {};

TEST_P(ProgressiveServerRandom, NobodyWaitsForever) {
  const PipelineLayout layout{6, GetParam()};
  ProgressiveServerPolicy policy(layout,
                                 {.regroup = {.slowdown_max = 1.2, .margin = 1.05, .patience = 2}});
  RandomPipelines pipelines(policy, layout, {.seed = 31, .death_share = 0.001});
  ServerRecount recount(layout, ServerRecount::Updates::kOfGroups);
  watch(pipelines, recount);
  std::set<PipelineGroups> seen;
  for (int round = 0; round < kRounds; ++round) {
    pipelines.run(kEvents / kRounds);
    seen.insert(policy.groups());
  }
  pipelines.settle(30);
  EXPECT_EQ(pipelines.breach(), "");
  EXPECT_GT(seen.size(), 10u);
}

INSTANTIATE_TEST_SUITE_P(Stages, ProgressiveServerRandom, testing::Values(1u, 3u));

}  // namespace
}  // namespace skein::plans
