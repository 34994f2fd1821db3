#include "plans/coordinator/unreachable_pairs.hpp"

#include <gtest/gtest.h>

namespace skein::plans {
namespace {

constexpr uint64_t kMinuteUs = 60'000'000;

TEST(UnreachablePairs, BothEndsReportOnePair) {
  UnreachablePairs pairs;
  EXPECT_TRUE(pairs.add({2}, {1}, 3, 10));
  EXPECT_FALSE(pairs.add({1}, {2}, 3, 20));
  EXPECT_EQ(pairs.at(30), WorkerPairs({{WorkerId{1}, WorkerId{2}}}));
  EXPECT_EQ(pairs.describe(30), "w1 and w2 do not reach one another");
}

TEST(UnreachablePairs, IsBelievedForAMinuteAndForLongerEachTime) {
  UnreachablePairs pairs;
  uint64_t now_us = 10;
  for (uint64_t time = 0; time < 3; ++time) {
    pairs.add({1}, {2}, time, now_us);
    const uint64_t end_us = now_us + (kMinuteUs << time);
    EXPECT_EQ(pairs.next_end_us(now_us), end_us);
    EXPECT_FALSE(pairs.at(end_us - 1).empty());
    EXPECT_TRUE(pairs.at(end_us).empty());
    now_us = end_us;
  }
  EXPECT_EQ(pairs.next_end_us(now_us), std::nullopt);
}

TEST(UnreachablePairs, DoesWithoutOneOfAPairThatWasTriedAgainInVain) {
  UnreachablePairs pairs;
  const std::vector<WorkerId> all = {{1}, {2}, {3}, {4}};
  pairs.add({1}, {2}, 1, 10);
  EXPECT_EQ(pairs.without_stubborn(all, 11), all) << "a plan may do without the link";
  pairs.try_again(11);
  pairs.add({1}, {2}, 2, 20);
  EXPECT_EQ(pairs.without_stubborn(all, 21), (std::vector<WorkerId>{{1}, {3}, {4}}));
  EXPECT_EQ(pairs.without_stubborn({{2}, {4}}, 21), (std::vector<WorkerId>{{2}, {4}}));
}

TEST(UnreachablePairs, WhomNobodyReachesGoesFirst) {
  UnreachablePairs pairs;
  for (uint64_t time = 0; time < 2; ++time) {
    for (uint32_t other : {2u, 3u, 4u}) pairs.add({1}, {other}, time, 10 + time);
    if (time == 0) pairs.try_again(10);
  }
  EXPECT_EQ(pairs.without_stubborn({{1}, {2}, {3}, {4}}, 20),
            (std::vector<WorkerId>{{2}, {3}, {4}}));
}

TEST(UnreachablePairs, ALinkThatIsNotBelievedToBeDownAnyMoreIsNotStubborn) {
  UnreachablePairs pairs;
  pairs.add({1}, {2}, 1, 10);
  const uint64_t later_us = *pairs.next_end_us(10);
  pairs.add({1}, {2}, 2, later_us);
  EXPECT_EQ(pairs.without_stubborn({{1}, {2}}, later_us + 1).size(), 2u) << "no plan needed it";
}

TEST(UnreachablePairs, KnowsWhetherTheLinksWereTriedAgain) {
  UnreachablePairs pairs;
  pairs.add({1}, {2}, 1, 10);
  EXPECT_FALSE(pairs.were_tried_again(11));
  pairs.try_again(11);
  EXPECT_TRUE(pairs.at(11).empty());
  pairs.add({1}, {2}, 2, 20);
  EXPECT_TRUE(pairs.were_tried_again(21));
  pairs.add({1}, {3}, 2, 20);
  EXPECT_FALSE(pairs.were_tried_again(21)) << "the other one was not";
}

TEST(UnreachablePairs, ALinkThatHasWorkedForAMinuteIsTriedAgainFirst) {
  UnreachablePairs pairs;
  pairs.add({1}, {2}, 1, 10);
  pairs.try_again(20);
  const uint64_t later_us = 20 + 2 * kMinuteUs;
  EXPECT_TRUE(pairs.add({1}, {2}, 1, later_us));
  EXPECT_FALSE(pairs.were_tried_again(later_us + 1));
  EXPECT_EQ(pairs.next_end_us(later_us), later_us + kMinuteUs);
}

TEST(UnreachablePairs, ForgetsAPairWhenOneIsGone) {
  UnreachablePairs pairs;
  pairs.add({1}, {2}, 1, 10);
  pairs.add({3}, {2}, 1, 10);
  pairs.add({3}, {1}, 1, 10);
  pairs.forget({2});
  EXPECT_EQ(pairs.at(11), WorkerPairs({{WorkerId{1}, WorkerId{3}}}));
}

TEST(UnreachablePairs, AreBounded) {
  UnreachablePairs pairs;
  for (uint32_t worker = 2; worker < 5000; ++worker) pairs.add({1}, {worker}, 1, worker);
  pairs.check_invariants();
}

}  // namespace
}  // namespace skein::plans
