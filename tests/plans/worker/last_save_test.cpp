#include "plans/worker/last_save.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace skein::plans {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using SavedPart = LastSave::Part;

constexpr uint64_t kGivesUpUs = 100'000'000;
constexpr uint64_t kLastSaveUs = 20'000'000;
constexpr uint64_t kOverUs = kGivesUpUs + kLastSaveUs;

constexpr LastSave::Held kHoldsNothing{};
constexpr LastSave::Held kHoldsCopies{.has_copies = true};
constexpr LastSave::Held kHoldsNewestCopy{.has_copies = true, .is_newest_copied = true};
constexpr LastSave::Held kHoldsModels{.has_models = true};

LastSave::Options idle_device() {
  LastSave::Options options;
  options.why = absl::UnavailableError("nobody answers");
  options.patience_seconds = 20;
  options.steps_done = 7;
  return options;
}

LastSave::Options device_at_work() {
  LastSave::Options options = idle_device();
  options.is_device_at_work = true;
  return options;
}

/// Its device has been waited for already.
LastSave::Options late_device() {
  LastSave::Options options = device_at_work();
  options.is_device_late = true;
  return options;
}

LastSave::Options leaver_at_work(double patience_seconds) {
  LastSave::Options options = device_at_work();
  options.leaves = true;
  options.patience_seconds = patience_seconds;
  return options;
}

EmergencySaved saved_in(const std::string& folder) { return {{folder}, absl::OkStatus()}; }

EmergencySaved full_disk() { return {{}, absl::UnavailableError("the disk is full"), true}; }

bool decides_nothing(const LastSave::Decision& decision) {
  return !decision.announces && !decision.saves && !decision.ends;
}

bool only_announces(const LastSave::Decision& decision) {
  return decision.announces && !decision.saves && !decision.ends;
}

std::string end_text(const LastSave::Decision& decision) {
  return decision.ends ? std::string(decision.ends->status.message()) : "it goes on";
}

/// The first time from `kGivesUpUs` on, in steps of half a second, at which copies are written.
uint64_t wait_for_copies_us(const LastSave::Options& options) {
  LastSave save(options, kGivesUpUs);
  save.begin(kHoldsCopies, kGivesUpUs);
  for (uint64_t waited = 0; waited < kLastSaveUs; waited += 500'000) {
    const LastSave::Decision decision = save.on_tick(kHoldsCopies, kGivesUpUs + waited);
    if (decision.saves == SavedPart::kCopies) return waited;
    EXPECT_FALSE(decision.saves);
    EXPECT_FALSE(decision.ends);
  }
  return kLastSaveUs;
}

TEST(LastSave, WritesAllAtOnceWhereTheDeviceHasEndedAndThenEnds) {
  for (const LastSave::Held& held : {kHoldsCopies, kHoldsModels}) {
    LastSave save(idle_device(), kGivesUpUs);
    const LastSave::Decision first = save.begin(held, kGivesUpUs);
    EXPECT_EQ(first.saves, SavedPart::kAll);
    EXPECT_FALSE(first.announces) << "the device has nothing that follows";
    EXPECT_FALSE(first.ends);
    const LastSave::Decision last = save.on_saved(saved_in("/x"), held, kGivesUpUs + 1);
    ASSERT_TRUE(last.ends);
    EXPECT_FALSE(last.saves);
    EXPECT_FALSE(last.ends->is_at_work);
    EXPECT_EQ(last.ends->status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(end_text(last),
              "nobody answers; what this worker holds is in /x: the run goes on from there when it "
              "is resumed, if all layers are");
  }
}

TEST(LastSave, WhoHoldsNothingEndsAtOnce) {
  LastSave save(idle_device(), kGivesUpUs);
  const LastSave::Decision decision = save.begin(kHoldsNothing, kGivesUpUs);
  EXPECT_FALSE(decision.saves);
  ASSERT_TRUE(decision.ends);
  EXPECT_FALSE(decision.ends->is_at_work);
  EXPECT_EQ(end_text(decision), "nobody answers");
}

TEST(LastSave, SaysThatStateFollowsForAsLongAsTheDeviceIsAtWork) {
  LastSave save(device_at_work(), kGivesUpUs);
  EXPECT_TRUE(only_announces(save.begin(kHoldsNothing, kGivesUpUs)));
  EXPECT_TRUE(only_announces(save.on_tick(kHoldsNothing, kGivesUpUs + 1)));
  EXPECT_TRUE(only_announces(save.on_tick(kHoldsNothing, kOverUs - 1)));
  const LastSave::Decision ended = save.on_device_ended(kHoldsModels, kOverUs - 1);
  EXPECT_FALSE(ended.announces);
  EXPECT_EQ(ended.saves, SavedPart::kAll);
}

TEST(LastSave, SaysNothingOfStateThatNobodyWouldTakeBack) {
  LastSave::Options options = device_at_work();
  options.steps_done = 0;
  LastSave fresh(options, kGivesUpUs);
  EXPECT_TRUE(decides_nothing(fresh.begin(kHoldsNothing, kGivesUpUs)));
  EXPECT_TRUE(decides_nothing(fresh.on_tick(kHoldsNothing, kGivesUpUs + 1)));

  LastSave save(device_at_work(), kGivesUpUs);
  EXPECT_TRUE(only_announces(save.begin(kHoldsNewestCopy, kGivesUpUs))) << "no copy is on disk yet";
  EXPECT_EQ(save.on_tick(kHoldsNewestCopy, kGivesUpUs + kLastSaveUs / 2).saves, SavedPart::kCopies);
  EXPECT_TRUE(decides_nothing(save.on_saved(saved_in("/x"), kHoldsNewestCopy, kOverUs - 3)));
  EXPECT_TRUE(decides_nothing(save.on_tick(kHoldsNewestCopy, kOverUs - 2)));
  EXPECT_TRUE(only_announces(save.on_tick(kHoldsCopies, kOverUs - 1)))
      << "older copies are not enough";
}

TEST(LastSave, CopiesWaitForTheDeviceHalfOfThePatience) {
  EXPECT_EQ(wait_for_copies_us(device_at_work()), kLastSaveUs / 2);
}

TEST(LastSave, ALeaverWaitsTwoSecondsOrHalfOfThePatienceIfThatIsLess) {
  EXPECT_EQ(wait_for_copies_us(leaver_at_work(300)), 2'000'000u);
  EXPECT_EQ(wait_for_copies_us(leaver_at_work(3)), 1'500'000u);
}

TEST(LastSave, CopiesDoNotWaitForADeviceThatWasWaitedFor) {
  EXPECT_EQ(wait_for_copies_us(late_device()), 0u);
}

TEST(LastSave, WhatTheDeviceHasIsWrittenAfterTheCopies) {
  LastSave save(leaver_at_work(20), kGivesUpUs);
  save.begin(kHoldsCopies, kGivesUpUs);
  ASSERT_EQ(save.on_tick(kHoldsCopies, kGivesUpUs + 2'000'000).saves, SavedPart::kCopies);
  EXPECT_TRUE(decides_nothing(save.on_saved(saved_in("/x"), kHoldsCopies, kGivesUpUs + 2'000'001)));
  EXPECT_TRUE(only_announces(save.on_tick(kHoldsCopies, kGivesUpUs + 3'000'000)))
      << "they are on disk";
  const LastSave::Held both{.has_copies = true, .has_models = true};
  EXPECT_EQ(save.on_device_ended(both, kGivesUpUs + 4'000'000).saves, SavedPart::kAll);
  EmergencySaved all{{"/y", "/x"}, absl::OkStatus()};
  const LastSave::Decision last = save.on_saved(all, both, kGivesUpUs + 4'000'001);
  ASSERT_TRUE(last.ends);
  EXPECT_FALSE(last.ends->is_at_work);
  EXPECT_THAT(end_text(last), HasSubstr("is in /x, /y: "));
  EXPECT_THAT(end_text(last), Not(HasSubstr("only on the device")));
}

TEST(LastSave, ADeviceThatEndsWhileCopiesAreWrittenIsSeenToAfterThem) {
  for (const bool is_disk_full : {false, true}) {
    LastSave save(leaver_at_work(20), kGivesUpUs);
    save.begin(kHoldsCopies, kGivesUpUs);
    ASSERT_EQ(save.on_tick(kHoldsCopies, kGivesUpUs + 2'000'000).saves, SavedPart::kCopies);
    EXPECT_TRUE(decides_nothing(save.on_device_ended(kHoldsModels, kGivesUpUs + 2'000'001)));
    EXPECT_TRUE(decides_nothing(save.on_tick(kHoldsModels, kGivesUpUs + 2'500'000)));
    const LastSave::Decision next = save.on_saved(is_disk_full ? full_disk() : saved_in("/x"),
                                                  kHoldsModels, kGivesUpUs + 2'600'000);
    if (is_disk_full) {
      EXPECT_TRUE(decides_nothing(next)) << "not at once";
      EXPECT_EQ(save.on_tick(kHoldsModels, kGivesUpUs + 3'000'000).saves, SavedPart::kAll);
    } else {
      EXPECT_EQ(next.saves, SavedPart::kAll);
    }
  }
}

TEST(LastSave, CopiesThatCouldNotBeWrittenAreTriedAgainWhileTheDeviceIsAtWork) {
  LastSave save(late_device(), kGivesUpUs);
  save.begin(kHoldsCopies, kGivesUpUs);
  ASSERT_EQ(save.on_tick(kHoldsCopies, kGivesUpUs).saves, SavedPart::kCopies);
  EXPECT_TRUE(decides_nothing(save.on_saved(full_disk(), kHoldsCopies, kGivesUpUs + 1)));
  EXPECT_EQ(save.on_tick(kHoldsCopies, kGivesUpUs + 2).saves, SavedPart::kCopies);
}

TEST(LastSave, WhoseDeviceWasWaitedForEndsWithTheCopiesOrWithoutAny) {
  LastSave with(late_device(), kGivesUpUs);
  EXPECT_FALSE(with.begin(kHoldsCopies, kGivesUpUs).ends);
  ASSERT_EQ(with.on_tick(kHoldsCopies, kGivesUpUs).saves, SavedPart::kCopies);
  const LastSave::Decision last = with.on_saved(saved_in("/x"), kHoldsCopies, kGivesUpUs + 1);
  ASSERT_TRUE(last.ends);
  EXPECT_TRUE(last.ends->is_at_work);
  EXPECT_EQ(
      end_text(last),
      "nobody answers; what is only on the device, which does not end its work, is lost; what "
      "this worker holds is in /x: the run goes on from there when it is resumed, if all "
      "layers are");

  LastSave without(late_device(), kGivesUpUs);
  EXPECT_FALSE(without.begin(kHoldsModels, kGivesUpUs).ends);
  const LastSave::Decision none = without.on_tick(kHoldsModels, kGivesUpUs);
  EXPECT_FALSE(none.saves) << "nobody can read its models";
  ASSERT_TRUE(none.ends);
  EXPECT_TRUE(none.ends->is_at_work);
}

TEST(LastSave, AFullDiskIsTriedAgainUntilThePatienceIsOver) {
  LastSave save(idle_device(), kGivesUpUs);
  ASSERT_EQ(save.begin(kHoldsModels, kGivesUpUs).saves, SavedPart::kAll);
  for (uint64_t second = 1; second < 20; ++second) {
    const uint64_t now_us = kGivesUpUs + second * 1'000'000;
    EXPECT_TRUE(decides_nothing(save.on_saved(full_disk(), kHoldsModels, now_us)));
    EXPECT_EQ(save.on_tick(kHoldsModels, now_us).saves, SavedPart::kAll);
  }
  EXPECT_TRUE(decides_nothing(save.on_saved(full_disk(), kHoldsModels, kOverUs - 1)));
  const LastSave::Decision last = save.on_tick(kHoldsModels, kOverUs);
  ASSERT_TRUE(last.ends);
  EXPECT_FALSE(last.ends->is_at_work) << "nothing is being written";
  EXPECT_EQ(end_text(last),
            "nobody answers; what this worker holds could not be written within 20 s: the disk is "
            "full");
}

TEST(LastSave, AFaultThatStaysIsNotTriedAgain) {
  LastSave save(idle_device(), kGivesUpUs);
  save.begin(kHoldsModels, kGivesUpUs);
  const LastSave::Decision last = save.on_saved({{"/x"}, absl::UnavailableError("no such folder")},
                                                kHoldsModels, kGivesUpUs + 1);
  ASSERT_TRUE(last.ends);
  EXPECT_THAT(end_text(last),
              HasSubstr("; what this worker holds beside that could not be written: no such"));
}

TEST(LastSave, ADiskAndADeviceThatHangAreNotWaitedForForEver) {
  LastSave disk(idle_device(), kGivesUpUs);
  disk.begin(kHoldsModels, kGivesUpUs);
  EXPECT_TRUE(decides_nothing(disk.on_tick(kHoldsModels, kOverUs - 1))) << "one request at a time";
  const LastSave::Decision late = disk.on_tick(kHoldsModels, kOverUs);
  ASSERT_TRUE(late.ends);
  EXPECT_TRUE(late.ends->is_at_work);
  EXPECT_EQ(end_text(late),
            "nobody answers; what this worker holds could not be written within 20 s");

  LastSave device(device_at_work(), kGivesUpUs);
  device.begin(kHoldsNothing, kGivesUpUs);
  EXPECT_FALSE(device.on_tick(kHoldsNothing, kOverUs - 1).ends);
  const LastSave::Decision hung = device.on_tick(kHoldsNothing, kOverUs);
  ASSERT_TRUE(hung.ends);
  EXPECT_TRUE(hung.ends->is_at_work);
  EXPECT_THAT(end_text(hung), HasSubstr("only on the device"));
}

TEST(LastSave, WhatComesUnaskedOrAfterTheEndChangesNothing) {
  LastSave save(device_at_work(), kGivesUpUs);
  save.begin(kHoldsCopies, kGivesUpUs);
  EXPECT_TRUE(decides_nothing(save.on_saved(saved_in("/x"), kHoldsCopies, kGivesUpUs + 1)))
      << "unasked";
  EXPECT_TRUE(only_announces(save.on_tick(kHoldsCopies, kGivesUpUs + 2)));
  ASSERT_EQ(save.on_device_ended(kHoldsModels, kGivesUpUs + 3).saves, SavedPart::kAll);
  ASSERT_TRUE(save.on_saved(saved_in("/y"), kHoldsModels, kGivesUpUs + 4).ends);
  EXPECT_TRUE(decides_nothing(save.on_saved(saved_in("/y"), kHoldsModels, kGivesUpUs + 5)))
      << "twice";
  EXPECT_TRUE(decides_nothing(save.on_device_ended(kHoldsModels, kGivesUpUs + 6)));
  EXPECT_TRUE(decides_nothing(save.on_tick(kHoldsModels, kOverUs)));
}

}  // namespace
}  // namespace skein::plans
