#include "plans/job/sample_order.hpp"

#include <gtest/gtest.h>

#include <set>

namespace skein::plans {
namespace {

TEST(SampleOrder, UsesEachWindowOnceInEveryPass) {
  for (uint64_t count : {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4097}) {
    const SampleOrder order{42, count};
    for (uint64_t pass = 0; pass < 3; ++pass) {
      std::set<uint64_t> seen;
      for (uint64_t i = 0; i < count; ++i) {
        const uint64_t window = order.window(pass * count + i);
        EXPECT_LT(window, count);
        EXPECT_TRUE(seen.insert(window).second) << window << " twice of " << count;
      }
    }
  }
}

TEST(SampleOrder, DependsOnSeedAndPass) {
  const SampleOrder a{1, 1000}, b{2, 1000};
  int same_seed = 0, same_pass = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    same_seed += a.window(i) == b.window(i) ? 1 : 0;
    same_pass += a.window(i) == a.window(1000 + i) ? 1 : 0;
  }
  EXPECT_LT(same_seed, 20);
  EXPECT_LT(same_pass, 20);
}

TEST(FirstSample, RangesOfStepsTileTheOrder) {
  for (uint64_t step = 0; step < 100; ++step) {
    EXPECT_EQ(first_sample(step, 32) + 32, first_sample(step + 1, 32));
  }
}

}  // namespace
}  // namespace skein::plans
