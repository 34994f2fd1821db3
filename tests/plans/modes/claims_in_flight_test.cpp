#include "plans/modes/claims_in_flight.hpp"

#include <gtest/gtest.h>

namespace skein::plans {
namespace {

ReadyReport report_of(uint64_t step) {
  ReadyReport report;
  report.step = step;
  return report;
}

TEST(ClaimsInFlight, StagesReportEachForItselfAndTheOldestEndsWhenAllHave) {
  ClaimsInFlight claims(2);
  EXPECT_FALSE(claims.awaits(0));
  claims.give({0, 4});
  claims.give({8, 4});
  EXPECT_EQ(claims.next_step(), 2u);
  EXPECT_EQ(claims.report(1, report_of(0)).samples, (SampleClaim{0, 4}));
  EXPECT_EQ(claims.report(1, report_of(1)).samples, (SampleClaim{8, 4}))
      << "it is ahead of stage 0";
  EXPECT_FALSE(claims.awaits(1));
  EXPECT_FALSE(claims.is_oldest_done());
  EXPECT_EQ(claims.report(0, report_of(0)).samples, (SampleClaim{0, 4}));
  ASSERT_TRUE(claims.is_oldest_done());
  claims.check_invariants();
  const ClaimsInFlight::Claim done = claims.end_oldest();
  EXPECT_EQ(done.samples, (SampleClaim{0, 4}));
  EXPECT_EQ(done.reports.size(), 2u);
  EXPECT_EQ(claims.step(), 1u);
  EXPECT_FALSE(claims.is_oldest_done());
  EXPECT_TRUE(claims.awaits(0));
  claims.check_invariants();
}

TEST(ClaimsInFlight, EachStageHasAskedForAClaimOfItsOwn) {
  ClaimsInFlight claims(2);
  claims.give({0, 4});
  claims.give({4, 1});
  EXPECT_FALSE(claims.asked_for(1));
  claims.ask(1);
  EXPECT_EQ(claims.asked_for(1), (SampleClaim{0, 4}));
  claims.report(1, report_of(0));
  claims.ask(1);
  EXPECT_EQ(claims.asked_for(1), (SampleClaim{4, 1}));
  EXPECT_FALSE(claims.asked_for(0));
  claims.ask(0);
  claims.report(0, report_of(0));
  EXPECT_EQ(claims.asked_for(0), (SampleClaim{0, 4}));
  claims.end_oldest();
  EXPECT_FALSE(claims.asked_for(0)) << "all have done it";
  EXPECT_EQ(claims.asked_for(1), (SampleClaim{4, 1}));
}

TEST(ClaimsInFlight, AStageAsksOnceForEachClaimBeforeItsReportOrWithIt) {
  ClaimsInFlight claims(1);
  claims.give({0, 4});
  claims.give({4, 4});
  EXPECT_FALSE(claims.has_asked(0));
  EXPECT_EQ(claims.ask(0), 0u);
  EXPECT_TRUE(claims.has_asked(0));
  claims.report(0, report_of(0));
  EXPECT_FALSE(claims.has_asked(0)) << "of the next one";
  claims.report(0, report_of(1));
  EXPECT_EQ(claims.ask(0), 1u) << "with the report";
  claims.check_invariants();
}

}  // namespace
}  // namespace skein::plans
