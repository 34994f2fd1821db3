#include "cli/pictures/run_history.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/support/golden.hpp"

namespace skein::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Steps of half a second, a kill that costs one second, and a slower pipeline behind it.
RunHistory history_with_a_kill() {
  RunHistory history;
  history.title = "a <run> & a kill";
  double now = 1;
  for (int step = 0; step < 20; ++step) {
    now += step < 10 ? 0.5 : step == 10 ? 1.75 : 0.75;
    history.add({now, 32, 5.0 - 0.1 * step});
  }
  history.mark({6.5, "w3 lost", true});
  history.mark({6.75, "plan 2", false});
  history.mark({12, "w5 joined", false});
  return history;
}

TEST(RunHistory, LooksAsItDid) {
  tests::expect_golden("pictures/run_history.svg", run_history_svg(history_with_a_kill()));
}

TEST(RunHistory, ARunOfMillionsOfStepsIsASmallPicture) {
  RunHistory history = history_with_a_kill();
  for (int i = 0; i < 300; ++i) history.mark({20.0 + i, "w77777 joined", false});
  double samples = 0;
  for (const HistoryPoint& point : history.points) samples += point.samples;
  for (int step = 0; step < 1'000'000; ++step) {
    history.add({20 + step * 0.123456, 8, 3 + std::sin(step)});
    samples += 8;
  }
  EXPECT_LE(history.points.size(), kHistoryPointsMax);
  EXPECT_LE(history.marks.size(), kHistoryMarksMax);
  double kept = 0;
  for (const HistoryPoint& point : history.points) kept += point.samples;
  EXPECT_EQ(kept, samples) << "merging loses none";
  EXPECT_LT(run_history_svg(history).size(), 60'000);
}

TEST(RunHistory, WhatHasNoNumbersIsNotDrawn) {
  EXPECT_EQ(run_history_svg({}), "");
  RunHistory history;
  history.add({1, 8, 2.5});
  EXPECT_EQ(run_history_svg(history), "") << "one commit has no rate";
  history.add({1, 8, std::numeric_limits<double>::quiet_NaN()});
  history.add({2, 8, std::numeric_limits<double>::infinity()});
  const std::string drawing = run_history_svg(history);
  EXPECT_THAT(drawing, Not(HasSubstr("nan")));
  EXPECT_THAT(drawing, Not(HasSubstr("inf")));
}

}  // namespace
}  // namespace skein::cli
