#include "plans/modes/last_claim.hpp"

#include <gtest/gtest.h>

namespace skein::plans {
namespace {

TEST(LastClaim, TheSlowOneTakesNoneThatAllWouldWaitFor) {
  // Two that do a claim in 1 ms, and one in 4 ms; each is at one.
  const std::vector<PipelinePace> all = {{true, 1000, 1}, {true, 1000, 1}, {true, 4000, 1}};
  EXPECT_TRUE(would_be_last(all, 2, 4)) << "the others need 3 ms for six claims, it 8 ms for two";
  EXPECT_FALSE(would_be_last(all, 2, 14)) << "8 ms";
  EXPECT_FALSE(would_be_last(all, 0, 4));
}

TEST(LastClaim, OfOnesThatAreAlikeNobodyStopsEarly) {
  const std::vector<PipelinePace> all(4, {true, 1000, 1});
  for (double left = 4; left < 20; ++left) EXPECT_FALSE(would_be_last(all, 1, left)) << left;
}

TEST(LastClaim, ClaimsCountByTheirSamples) {
  // One does 12 samples in 3 ms, the other one 4 in 4 ms.
  const std::vector<PipelinePace> all = {{true, 3000, 1, 12}, {true, 4000, 1, 4}};
  EXPECT_TRUE(would_be_last(all, 1, 16)) << "the other one needs 7 ms for 28 samples, it 8 ms";
  EXPECT_FALSE(would_be_last(all, 1, 24)) << "9 ms";
  EXPECT_FALSE(would_be_last(all, 0, 16));
}

TEST(LastClaim, WhoTakesLeastTimeForTheRestTakesIt) {
  // The first one would do a whole iteration for four samples.
  const std::vector<PipelinePace> all = {{true, 10000, 1, 112}, {true, 10500, 0, 4}};
  EXPECT_FALSE(would_be_last(all, 1, 4));
  EXPECT_TRUE(would_be_last(all, 0, 4));
}

TEST(LastClaim, NothingIsRefusedOnAGuess) {
  EXPECT_FALSE(would_be_last({{true, 0, 1}, {true, 9000, 1}}, 1, 1)) << "a pace is not known";
  EXPECT_FALSE(would_be_last({{false, 1000, 1}, {true, 9000, 1}}, 1, 1)) << "nobody else goes on";
  EXPECT_FALSE(would_be_last({{true, 9000, 1}}, 0, 1));
}

}  // namespace
}  // namespace skein::plans
