#include "plans/base/student_t.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace skein::plans {
namespace {

TEST(StudentT, AgreesWithThePrintedTables) {
  struct Row {
    int64_t freedom;
    double at_950, at_975, at_995;
  };
  // Any book of statistics has these.
  const Row rows[] = {{1, 6.313752, 12.706205, 63.656741}, {2, 2.919986, 4.302653, 9.924843},
                      {3, 2.353363, 3.182446, 5.840909},   {4, 2.131847, 2.776445, 4.604095},
                      {9, 1.833113, 2.262157, 3.249836},   {30, 1.697261, 2.042272, 2.749996},
                      {120, 1.657651, 1.979930, 2.617421}};
  for (const Row& row : rows) {
    EXPECT_NEAR(student_t_quantile(0.95, row.freedom), row.at_950, 1e-6 * row.at_950);
    EXPECT_NEAR(student_t_quantile(0.975, row.freedom), row.at_975, 1e-6 * row.at_975);
    EXPECT_NEAR(student_t_quantile(0.995, row.freedom), row.at_995, 1e-6 * row.at_995);
  }
}

TEST(StudentT, HasTheClosedFormsOfOneAndTwoDegrees) {
  for (int i = 1; i < 100; ++i) {
    const double p = i / 100.0;
    const double cauchy = std::tan(M_PI * (p - 0.5));
    EXPECT_NEAR(student_t_quantile(p, 1), cauchy, 1e-9 * (1 + std::abs(cauchy))) << p;
    const double two = (2 * p - 1) / std::sqrt(2 * p * (1 - p));
    EXPECT_NEAR(student_t_quantile(p, 2), two, 1e-9 * (1 + std::abs(two))) << p;
  }
}

TEST(StudentT, TendsToTheNormalDistributionFromAbove) {
  double before = 1e9;
  for (int64_t freedom = 1; freedom <= 4096; freedom *= 2) {
    const double value = student_t_quantile(0.975, freedom);
    EXPECT_LT(value, before);
    before = value;
  }
  EXPECT_NEAR(before, 1.959964, 1e-3);
  EXPECT_GT(before, 1.959964);
}

TEST(MeanInterval, IsTheTextbookInterval) {
  const std::vector<double> values = {4, 8, 6};
  const MeanInterval interval = mean_interval(values, 0.95);
  EXPECT_DOUBLE_EQ(interval.mean, 6);
  // Standard deviation 2, of three values.
  EXPECT_NEAR(interval.half_width.value(), 4.302653 * 2 / std::sqrt(3), 1e-5);
  EXPECT_NEAR(interval.high() - interval.low(), 2 * *interval.half_width, 1e-12);
}

TEST(MeanInterval, OfOneValueKnowsNothingOfItsSpread) {
  const std::vector<double> one = {4}, far = {1000, 1001};
  const MeanInterval interval = mean_interval(one, 0.95);
  EXPECT_EQ(interval.mean, 4);
  EXPECT_FALSE(interval.half_width);
  EXPECT_FALSE(interval.is_apart_from(mean_interval(far, 0.95)));
  EXPECT_FALSE(mean_interval(far, 0.95).is_apart_from(interval));
}

TEST(MeanInterval, IsApartIfNothingIsInBoth) {
  const MeanInterval low{1, 0.5}, touching{2, 0.5}, high{2.1, 0.5};
  EXPECT_FALSE(low.is_apart_from(low));
  EXPECT_FALSE(low.is_apart_from(touching));
  EXPECT_TRUE(low.is_apart_from(high));
  EXPECT_TRUE(high.is_apart_from(low));
}

}  // namespace
}  // namespace skein::plans
