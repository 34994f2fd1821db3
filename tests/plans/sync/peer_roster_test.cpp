#include "plans/sync/peer_roster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace skein::plans {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ReplicaId kFast{0}, kSlow{1}, kThird{2};

/// Three of one stage: the fast one has done ten steps, the others one. A group of the fast one and
/// the slow one is open.
struct OpenGroup {
  OpenGroup() {
    for (uint64_t step = 0; step < 10; ++step) {
      roster.take_ready({kFast, step});
      if (step < 9) start({kFast});
    }
    roster.take_ready({kSlow, 0});
    roster.take_ready({kThird, 0});
    number = start({kFast, kSlow}).number;
  }
  GroupStart start(const std::vector<ReplicaId>& members) { return roster.start(members); }
  /// How far apart the weights of the slow one and the third one are.
  uint64_t staleness() {
    roster.take_ready({kSlow, 1});
    return start({kSlow, kThird}).staleness;
  }

  PeerRoster roster{PipelineLayout{3, 1}};
  uint64_t number = 0;
};

TEST(PeerRoster, WhoLeavesAGroupThatFailsHasWhatItHad) {
  for (const bool ok : {true, false}) {
    OpenGroup group;
    ASSERT_TRUE(group.roster.leave({1, false, 0}));
    EXPECT_THAT(group.roster.end({group.number, ok}), ElementsAre(kFast));
    ASSERT_TRUE(group.roster.join({1, true, 1}));
    EXPECT_EQ(group.staleness(), ok ? 10u : 1u) << "the version of the third one is 1";
  }
}

TEST(PeerRoster, WhoIsBackBeforeTheGroupFailsHasWhatItHad) {
  OpenGroup group;
  group.roster.leave({1, false, 0});
  group.roster.join({1, true, 1});
  EXPECT_TRUE(group.roster.is_free(kSlow));
  EXPECT_THAT(group.roster.end({group.number, false}), ElementsAre(kFast));
  EXPECT_EQ(group.staleness(), 1u);
}

TEST(PeerRoster, WhoHasAveragedSinceKeepsThat) {
  OpenGroup group;
  group.roster.leave({1, false, 0});
  group.roster.join({1, true, 1});
  const GroupStart next = [&] {
    group.roster.take_ready({kSlow, 1});
    return group.start({kSlow, kThird});
  }();
  EXPECT_THAT(group.roster.end({group.number, false}), ElementsAre(kFast));
  EXPECT_FALSE(group.roster.is_free(kSlow)) << "it is in the other one";
  EXPECT_THAT(group.roster.end({next.number, true}), ElementsAre(kSlow, kThird));
  group.roster.take_ready({kSlow, 2});
  group.roster.take_ready({kThird, 1});
  EXPECT_EQ(group.start({kSlow, kThird}).staleness, 0u);
}

TEST(PeerRoster, AGroupWithoutMembersIsNotOpen) {
  OpenGroup group;
  group.roster.leave({0, false, 0});
  EXPECT_TRUE(group.roster.is_open(group.number));
  group.roster.leave({1, false, 0});
  EXPECT_FALSE(group.roster.is_open(group.number));
  EXPECT_THAT(group.roster.end({group.number, false}), IsEmpty());
  group.roster.leave({2, false, 0});
  for (uint32_t pipeline : {0, 1, 2}) group.roster.join({pipeline, true, 0});
  group.roster.take_ready({kSlow, 0});
  group.roster.take_ready({kThird, 0});
  EXPECT_EQ(group.start({kSlow, kThird}).staleness, 0u) << "a round begins with the same for all";
}

}  // namespace
}  // namespace skein::plans
