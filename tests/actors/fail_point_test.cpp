#include "actors/fail_point.hpp"

#include <signal.h>

#include <gtest/gtest.h>

#include <chrono>

namespace skein::actors {
namespace {

const auto kKilled = testing::KilledBySignal(SIGKILL);

/// Comes to `place` so many times as the worker of that number.
void reach_as(const std::string& text, plans::WorkerId self, FailPlace place, int times) {
  const FailPointHandle point = FailPoint::parse(text).value();
  point->identify(self);
  for (int i = 0; i < times; ++i) reach(point, place);
}

TEST(FailPoint, KillsItsTargetTheGivenTime) {
  const plans::WorkerId w2{2};
  EXPECT_EXIT(reach_as("w2:before-ready:3", w2, FailPlace::kBeforeReady, 3), kKilled,
              "before-ready");
  reach_as("w2:before-ready:3", w2, FailPlace::kBeforeReady, 2);
  reach_as("w2:before-ready:3", plans::WorkerId{3}, FailPlace::kBeforeReady, 5);
  reach_as("w2:before-ready:3", w2, FailPlace::kAfterReady, 5);
}

TEST(FailPoint, CountsFromOneAndKnowsTheCoordinator) {
  EXPECT_EXIT(reach_as("coordinator:before-start", {}, FailPlace::kBeforeStart, 1), kKilled, "");
  reach_as("coordinator:before-start", plans::WorkerId{1}, FailPlace::kBeforeStart, 1);
}

TEST(FailPoint, WithoutTargetKillsWhoeverComesFirst) {
  EXPECT_EXIT(reach(FailPoint::parse("while-applying").value(), FailPlace::kWhileApplying), kKilled,
              "");
}

TEST(FailPoint, WithTargetSparesAProcessThatDoesNotKnowItsNumberYet) {
  reach(FailPoint::parse("w1:while-applying").value(), FailPlace::kWhileApplying);
}

TEST(FailPoint, WithSecondsItHoldsUpItsTargetAndKillsNobody) {
  const auto begin = std::chrono::steady_clock::now();
  reach_as("coordinator:while-planning:1s", plans::WorkerId{1}, FailPlace::kWhilePlanning, 3);
  reach_as("coordinator:while-planning:1s", {}, FailPlace::kBeforeStart, 3);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(900));
  reach_as("coordinator:while-planning:1s", {}, FailPlace::kWhilePlanning, 1);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(990));
}

TEST(FailPoint, NoneDoesNothing) { reach(nullptr, FailPlace::kBeforeReady); }

TEST(FailPoint, NamesThePlacesWhenTheTextIsWrong) {
  for (const char* text : {"", "before-redy", "w0:before-ready", "x2:before-ready", "w2",
                           "before-ready:0", "before-ready:-1", "before-ready:0s", "before-ready:s",
                           "before-ready:two", "w2:before-ready:1:2", "w2:w3:before-ready"}) {
    const auto point = FailPoint::parse(text);
    EXPECT_TRUE(absl::IsInvalidArgument(point.status())) << text;
    EXPECT_NE(point.status().message().find("during-snapshot"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace skein::actors
