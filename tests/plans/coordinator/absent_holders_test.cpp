#include "plans/coordinator/absent_holders.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plans/base/units.hpp"

namespace skein::plans {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr WorkerId kWorker{2};
constexpr AbsentHolders::Patience kPatience{10 * kSecondUs, 60 * kSecondUs};

TEST(AbsentHolders, WhoIsHereMostOfTheTimeIsWaitedForAgain) {
  AbsentHolders absent;
  uint64_t now_us = kSecondUs;
  for (int time = 0; time < 10; ++time) {
    absent.await(kWorker, "its link is closed", kPatience, "", now_us);
    EXPECT_THAT(absent.awaited(now_us + 9 * kSecondUs), ElementsAre(kWorker)) << time;
    now_us += 5 * kSecondUs;
    absent.on_back(kWorker, now_us);
    EXPECT_THAT(absent.awaited(now_us), IsEmpty());
    now_us += 1000 * kSecondUs;
  }
}

TEST(AbsentHolders, WhoComesAndGoesIsNotWaitedForWithoutEndHoweverBriefly) {
  for (const uint64_t away_us : {uint64_t{1}, 5 * kSecondUs, 9 * kSecondUs}) {
    AbsentHolders absent;
    uint64_t now_us = kSecondUs;
    uint64_t times = 0;
    for (; times < 1000; ++times) {
      absent.await(kWorker, "its link is closed", kPatience, "", now_us);
      if (absent.awaited(now_us).empty()) break;
      now_us += away_us;
      absent.on_back(kWorker, now_us);
      now_us += 1000 * kSecondUs;
    }
    const uint64_t counted_us = std::max(away_us, kAbsenceUsMin);
    EXPECT_EQ(times, (70 * kSecondUs + counted_us - 1) / counted_us);
    absent.clear();
    absent.await(kWorker, "its link is closed", kPatience, "", now_us);
    EXPECT_THAT(absent.awaited(now_us), ElementsAre(kWorker)) << "a step was committed";
  }
}

TEST(AbsentHolders, WhoseLeaseIsOverIsNoAbsenceThatCounts) {
  AbsentHolders absent;
  absent.give_up(kWorker, "no heartbeat for 11 s");
  absent.on_back(kWorker, 100 * kSecondUs);
  absent.await(kWorker, "its link is closed", kPatience, "", 200 * kSecondUs);
  EXPECT_EQ(absent.last_until_us(), 210 * kSecondUs);
}

}  // namespace
}  // namespace skein::plans
