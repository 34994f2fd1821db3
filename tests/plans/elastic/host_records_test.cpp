#include "plans/elastic/host_records.hpp"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace skein::plans {
namespace {

constexpr uint64_t kRecordedSecond = 1'000'000;
constexpr double kLease = 3;
constexpr uint64_t kStart = 1000 * kRecordedSecond;

/// For how long a newcomer from there is held back.
uint64_t held_us(const HostRecords& records, const std::string& host, uint64_t now_us) {
  return records.hold({host}, now_us).until_us - now_us;
}

TEST(HostRecords, TheFirstEarlyLossOfAHostIsFree) {
  HostRecords records(kLease);
  records.on_lost({"a"}, kStart, true, kStart + kRecordedSecond);
  EXPECT_EQ(held_us(records, "a", kStart + 2 * kRecordedSecond), 0u);
  EXPECT_EQ(records.hold({"a"}, kStart + 2 * kRecordedSecond).why, "");
}

TEST(HostRecords, FurtherEarlyLossesHoldNewcomersBackForLongerAndLongerUpTo64Seconds) {
  HostRecords records(kLease);
  uint64_t now_us = kStart;
  uint64_t before_us = 0;
  for (int loss = 1; loss < 20; ++loss, now_us += kRecordedSecond) {
    records.on_lost({"a"}, now_us, false, now_us);
    const uint64_t held = held_us(records, "a", now_us);
    EXPECT_TRUE(held == 2 * before_us || loss == 2 || held == 64 * kRecordedSecond) << loss;
    EXPECT_LE(held, 64 * kRecordedSecond) << loss;
    before_us = held;
  }
  EXPECT_EQ(before_us, 64 * kRecordedSecond);
  EXPECT_EQ(records.hold({"a"}, now_us).why, "host a is flapping");
  EXPECT_EQ(held_us(records, "b", now_us), 0u) << "it has had no part: others are not to blame";
}

TEST(HostRecords, LossesThatComeTogetherCountOnce) {
  HostRecords records(kLease);
  for (uint64_t n = 0; n < 8; ++n) records.on_lost({"a"}, kStart, true, kStart + n * 1000);
  EXPECT_EQ(held_us(records, "a", kStart + kRecordedSecond), 0u);
}

TEST(HostRecords, TheLossOfAWorkerThatHasStayedDoesNotCount) {
  HostRecords records(kLease);
  for (uint64_t n = 0; n < 8; ++n) {
    records.on_lost({"a"}, kStart, true, kStart + 7 * kRecordedSecond + n * kRecordedSecond);
  }
  EXPECT_EQ(held_us(records, "a", kStart + 20 * kRecordedSecond), 0u);
}

TEST(HostRecords, TimeInWhichNewcomersWereHeldBackIsNoTimeInWhichTheyStayed) {
  HostRecords records(kLease);
  for (uint64_t n = 0; n < 2; ++n) {
    const uint64_t now_us = kStart + n * 30 * kRecordedSecond;
    records.on_lost({"a"}, now_us + 5 * kRecordedSecond, false, now_us);
  }
  EXPECT_EQ(held_us(records, "a", kStart + 31 * kRecordedSecond), kRecordedSecond);
}

TEST(HostRecords, NewcomersThatAlwaysComeFromAnotherHostAreHeldBackOverAll) {
  HostRecords records(kLease);
  uint64_t now_us = kStart;
  for (int n = 0; n < 6; ++n, now_us += kRecordedSecond) {
    EXPECT_EQ(held_us(records, "new", now_us), n < 5 ? 0 : kRecordedSecond) << n;
    records.on_lost({absl::StrCat("host-", n)}, now_us, true, now_us);
  }
  EXPECT_EQ(held_us(records, "new", now_us), 2 * kRecordedSecond);
  EXPECT_EQ(records.hold({"new"}, now_us).why, "workers that join do not stay");
}

TEST(HostRecords, AHostThatLosesNobodyIsTrustedAgain) {
  HostRecords records(kLease);
  for (uint64_t n = 0; n < 4; ++n)
    records.on_lost({"a"}, kStart, false, kStart + n * kRecordedSecond);
  EXPECT_EQ(held_us(records, "a", kStart + 4 * kRecordedSecond), 4 * kRecordedSecond);
  EXPECT_EQ(held_us(records, "a", kStart + 64 * kRecordedSecond), 2 * kRecordedSecond);
  EXPECT_EQ(held_us(records, "a", kStart + 600 * kRecordedSecond), 0u);
}

TEST(HostRecords, TheAddressOfAConnectionCountsLikeAName) {
  HostRecords records(kLease);
  for (uint64_t n = 0; n < 3; ++n) {
    records.on_lost({absl::StrCat("name-", n), "10.0.0.7"}, kStart, false,
                    kStart + n * kRecordedSecond);
  }
  EXPECT_EQ(records.hold({"name-9", "10.0.0.7"}, kStart).why, "host 10.0.0.7 is flapping");
}

TEST(HostRecords, ThousandsOfHostNamesAreBounded) {
  HostRecords records(kLease);
  for (uint64_t n = 0; n < 5000; ++n) {
    records.on_lost({absl::StrCat("name-", n)}, kStart, false, kStart + n * 1000);
  }
  records.check_invariants();
}

}  // namespace
}  // namespace skein::plans
