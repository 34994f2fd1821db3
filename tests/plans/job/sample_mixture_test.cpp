#include "plans/job/sample_mixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace skein::plans {
namespace {

using testing::HasSubstr;

TEST(SampleMixture, GivesEachSourceItsShareOfEveryBlockAndEachSampleOnce) {
  const SampleMixture mixture = SampleMixture::make({6, 3, 1}, 7).value();
  std::vector<std::set<uint64_t>> samples(3);
  for (uint64_t block = 1; block <= 3; ++block) {
    for (uint64_t n = (block - 1) * SampleMixture::kBlock; n < block * SampleMixture::kBlock; ++n) {
      const SampleMixture::Place place = mixture.place(n);
      EXPECT_EQ(place.sample, samples[place.source].size()) << n;
      samples[place.source].insert(place.sample);
    }
    for (size_t source = 0; source < 3; ++source) {
      EXPECT_EQ(samples[source].size(), block * mixture.share(source));
      EXPECT_EQ(*samples[source].rbegin(), block * mixture.share(source) - 1) << "no gaps";
    }
  }
  EXPECT_NEAR(static_cast<double>(mixture.share(0)), 0.6 * SampleMixture::kBlock, 1);
  EXPECT_EQ(mixture.share(0) + mixture.share(1) + mixture.share(2), SampleMixture::kBlock);
}

TEST(SampleMixture, MixesWithinABlock) {
  const SampleMixture mixture = SampleMixture::make({1, 1}, 7).value();
  for (uint64_t begin = 0; begin < SampleMixture::kBlock; begin += 256) {
    int first = 0;
    for (uint64_t n = begin; n < begin + 256; ++n) first += mixture.place(n).source == 0;
    EXPECT_NEAR(first, 128, 45);
  }
}

TEST(SampleMixture, DependsOnSeedAndSampleOnly) {
  const SampleMixture a = SampleMixture::make({1, 2}, 7).value();
  const SampleMixture b = SampleMixture::make({10, 20}, 7).value();
  const SampleMixture c = SampleMixture::make({1, 2}, 8).value();
  int others = 0;
  for (uint64_t n = 5000; n-- > 0;) {
    EXPECT_EQ(a.place(n), b.place(n));
    others += a.place(n).source != c.place(n).source;
  }
  EXPECT_GT(others, 1000);
}

TEST(SampleMixture, RefusesWeightsThatAreNone) {
  for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_FALSE(SampleMixture::make({1, bad}, 0).ok()) << bad;
  }
  EXPECT_FALSE(SampleMixture::make({}, 0).ok());
  EXPECT_THAT(std::string(SampleMixture::make({1, 1e-6}, 0).status().message()),
              HasSubstr("weight 1e-06 is less than one in 4096"));
  EXPECT_TRUE(SampleMixture::make({1e300, 1e300}, 0).ok());
  EXPECT_EQ(SampleMixture::make({5}, 0).value().place(9).source, 0);
}

}  // namespace
}  // namespace skein::plans
