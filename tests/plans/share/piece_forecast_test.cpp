#include "plans/share/piece_forecast.hpp"

#include <gtest/gtest.h>

namespace skein::plans {
namespace {

/// Passes of two pieces, which take `taken_us` each and come `gap_us` behind the one before.
uint64_t train(PieceForecast& forecast, int passes, uint64_t taken_us, uint64_t gap_us) {
  uint64_t now_us = 1'000;
  for (int pass = 0; pass < passes; ++pass) {
    for (int32_t index : {0, 1}) {
      forecast.on_request(index, now_us);
      now_us += taken_us;
      forecast.on_end(index, index == 1, taken_us, now_us);
      now_us += gap_us;
    }
  }
  return now_us - gap_us;
}

TEST(PieceForecast, KnowsNothingAtFirst) {
  const PieceForecast forecast;
  EXPECT_FALSE(forecast.next());
  EXPECT_FALSE(forecast.taken_us(0));
}

TEST(PieceForecast, SaysWhenTheNextPieceComesAndWhatItTakes) {
  PieceForecast forecast;
  const uint64_t end_us = train(forecast, 10, 500, 300);
  EXPECT_DOUBLE_EQ(forecast.taken_us(1).value(), 500);
  const auto next = forecast.next().value();
  EXPECT_NEAR(next.early_us, static_cast<double>(end_us) + 300, 1);
  EXPECT_NEAR(next.late_us, static_cast<double>(end_us) + 300, 1);
  EXPECT_DOUBLE_EQ(next.taken_us, 500);
}

TEST(PieceForecast, ShorterGapsAreBelievedSoonerThanLongerOnes) {
  PieceForecast shorter;
  train(shorter, 20, 500, 1'000);
  PieceForecast longer = shorter;
  const uint64_t end_of_shorter = train(shorter, 3, 500, 100);
  const uint64_t end_of_longer = train(longer, 3, 500, 1'900);
  const double gap_of_shorter = shorter.next()->late_us - static_cast<double>(end_of_shorter);
  const double gap_of_longer = longer.next()->early_us - static_cast<double>(end_of_longer);
  EXPECT_LT(gap_of_shorter, 1'100);
  EXPECT_LT(gap_of_longer, 1'300);
}

TEST(PieceForecast, OneLongGapIsNoneOfThePasses) {
  PieceForecast forecast;
  uint64_t now_us = train(forecast, 20, 500, 1'000);
  now_us += 30'000'000;  // It validates.
  for (int32_t index : {0, 1}) {
    forecast.on_request(index, now_us);
    now_us += 500;
    forecast.on_end(index, index == 1, 500, now_us);
  }
  EXPECT_NEAR(forecast.next()->early_us, static_cast<double>(now_us) + 1'000, 600);
  EXPECT_NEAR(forecast.next()->late_us, static_cast<double>(now_us) + 1'000, 600);
}

TEST(PieceForecast, LongerGapsInARowAreTheNewUsual) {
  PieceForecast forecast;
  train(forecast, 20, 500, 10);
  const uint64_t end_us = train(forecast, 60, 500, 20'000);
  EXPECT_NEAR(forecast.next()->early_us, static_cast<double>(end_us) + 20'000, 6'000);
}

TEST(PieceForecast, PartsOfAPieceAreOnePiece) {
  PieceForecast forecast;
  for (uint64_t pass = 1; pass < 10; ++pass) {
    uint64_t now_us = pass * 10'000;
    forecast.on_request(0, now_us);
    for (int part = 0; part < 3; ++part) {
      if (part > 0) forecast.on_request(0, now_us);
      now_us += 100;
      forecast.on_end(0, part == 2, 100, now_us);
    }
  }
  EXPECT_NEAR(forecast.next()->early_us, 9 * 10'000 + 300 + 9'700, 1'000);
}

TEST(PieceForecast, ForgetsAndIgnoresWhatIsOutOfBounds) {
  PieceForecast forecast;
  train(forecast, 3, 500, 300);
  forecast.on_request(PieceForecast::kIndexMax + 1, 1);
  forecast.on_request(-1, 1);
  forecast.on_end(PieceForecast::kIndexMax + 1, true, 1, 2);
  EXPECT_TRUE(forecast.next());
  forecast.forget();
  EXPECT_FALSE(forecast.next());
}

}  // namespace
}  // namespace skein::plans
