#include "plans/sync/grouped_server.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "plans/sync/progressive_server.hpp"
#include "tests/plans/sync/random_columns.hpp"
#include "tests/plans/sync/server_recount.hpp"

namespace skein::plans {
namespace {

constexpr int kEvents = 150000;

/// What every grouped server keeps.
void check(const GroupStart& start, ServerRecount& recount, RandomColumns& columns) {
  if (start.combination != Combination::kServer || start.server < 1) columns.fail("no server");
  if (start.staleness != recount.push(start)) columns.fail("staleness miscounted");
  for (const GroupMember& member : start.members) {
    if (member.weight != 1.0 / columns.live_count()) columns.fail("weight");
  }
}

void watch(RandomColumns& columns, ServerRecount& recount) {
  columns.on_change = [&](const MembershipChange& change) {
    if (change.joins) recount.join(change.column);
  };
  columns.on_end = [&](const GroupStart& start, bool ok) { recount.end(start, ok); };
  columns.on_start = [&](const GroupStart& start) { check(start, recount, columns); };
}

struct GroupedServerRandom : testing::TestWithParam<uint32_t> {};

TEST_P(GroupedServerRandom, NobodyWaitsForeverWhileGroupsChangeAndColumnsComeAndGo) {
  const ColumnLayout layout{7, GetParam()};
  GroupedServerPolicy policy(layout, {0, 0, 1, 1, 1, 2, 2});
  RandomColumns columns(policy, layout, {.seed = 21 + GetParam(), .death_share = 0.001});
  ServerRecount recount(layout, ServerRecount::Updates::kOfGroups);
  watch(columns, recount);
  Rng rng(8);
  int regroupings = 0;
  for (int round = 0; round < 1000; ++round) {
    columns.run(kEvents / 1000);
    const auto count = static_cast<int32_t>(1 + rng.below(5));
    ColumnGroups groups;
    for (uint32_t column = 0; column < layout.columns; ++column) {
      groups.push_back(static_cast<int32_t>(rng.below(static_cast<uint64_t>(count))));
    }
    const bool was_regrouping = policy.is_regrouping();
    columns.apply(policy.regroup(groups));
    regroupings += was_regrouping ? 0 : 1;
  }
  columns.settle(30);
  EXPECT_EQ(columns.breach(), "");
  EXPECT_GT(columns.deaths(), 30u);
  EXPECT_GT(regroupings, 300);
}

INSTANTIATE_TEST_SUITE_P(Stages, GroupedServerRandom, testing::Values(1u, 2u, 5u));

TEST(GroupedServer, AGroupTakesEveryStepTogetherAndTheSameOneAtEveryStage) {
  const ColumnLayout layout{6, 3};
  const ColumnGroups groups = {0, 1, 0, 1, 2, 2};
  GroupedServerPolicy policy(layout, groups);
  RandomColumns columns(policy, layout,
                        {.seed = 2, .death_share = 0, .join_share = 0, .failure_share = 0});
  uint64_t staleness_max = 0;
  columns.on_start = [&](const GroupStart& start) {
    staleness_max = std::max(staleness_max, start.staleness);
    if (start.members.size() != 2) columns.fail("not the whole group");
    for (const GroupMember& member : start.members) {
      if (groups[layout.column_of(member.replica)] + 1 != start.server) columns.fail("a stranger");
      if (member.step != start.members[0].step) columns.fail("another step");
    }
  };
  columns.run(kEvents);
  EXPECT_EQ(columns.breach(), "");
  EXPECT_GT(staleness_max, 2u);  // A slow group meets many updates of the others.
}

TEST(GroupedServer, EquallyFastGroupsAreGMinusOneUpdatesStale) {
  const ColumnLayout layout{4, 1};
  GroupedServerPolicy policy(layout, {0, 1, 2, 3});
  for (uint64_t step = 0; step < 5; ++step) {
    for (uint32_t column = 0; column < 4; ++column) {
      const GroupDecisions decisions = policy.on_ready({{column}, step}, 0);
      ASSERT_EQ(decisions.starts.size(), 1u);
      EXPECT_EQ(decisions.starts[0].staleness, step == 0 ? column : 3);
      EXPECT_EQ(decisions.starts[0].server, static_cast<int32_t>(column) + 1);
      EXPECT_EQ(decisions.starts[0].members[0].weight, 0.25);
      policy.on_group_end({decisions.starts[0].number, true}, 0);
    }
  }
}

TEST(GroupedServer, RegroupsAfterTheStepsThatAnyStageHasBegun) {
  const ColumnLayout layout{2, 2};
  GroupedServerPolicy policy(layout, {0, 0});
  const auto ready = [&](uint32_t stage, uint32_t column, uint64_t step) {
    return policy.on_ready({layout.replica(stage, column), step}, 0);
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
  const ColumnLayout layout{6, GetParam()};
  ProgressiveServerPolicy policy(layout, {.slowdown_max = 1.2, .margin = 1.05, .patience = 2});
  RandomColumns columns(policy, layout, {.seed = 31, .death_share = 0.001});
  ServerRecount recount(layout, ServerRecount::Updates::kOfGroups);
  watch(columns, recount);
  std::set<ColumnGroups> seen;
  for (int round = 0; round < 1000; ++round) {
    columns.run(kEvents / 1000);
    seen.insert(policy.groups());
  }
  columns.settle(30);
  EXPECT_EQ(columns.breach(), "");
  EXPECT_GT(seen.size(), 10u);
}

INSTANTIATE_TEST_SUITE_P(Stages, ProgressiveServerRandom, testing::Values(1u, 3u));

}  // namespace
}  // namespace skein::plans
