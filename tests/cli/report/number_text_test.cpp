#include "cli/report/number_text.hpp"

#include <gtest/gtest.h>

namespace skein::cli {
namespace {

TEST(NumberTextTest, ARangeIsItsFirstAndItsLast) {
  EXPECT_EQ(range_text(0, 4), "0-3");
  EXPECT_EQ(range_text(3, 4), "3");
}

TEST(NumberTextTest, HalfOpenRangesAreSaidAlike) {
  EXPECT_EQ(with_ranges("stage 1 layers 4..8 rows 0..1"), "stage 1 layers 4-7 rows 0");
  EXPECT_EQ(with_ranges("no range: 4.. ..8 8..4 a..b 1..2x"), "no range: 4.. ..8 8..4 a..b 1..2x");
}

}  // namespace
}  // namespace skein::cli
