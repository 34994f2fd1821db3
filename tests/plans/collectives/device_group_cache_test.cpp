#include "plans/collectives/device_group_cache.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

using Numbers = std::vector<uint64_t>;

FormedGroup group_of(uint64_t number) { return {number, 0, 2, 0}; }

Numbers offered(const DeviceGroupCache& cache) {
  Numbers numbers;
  for (const FormedGroup& group : cache.offer()) numbers.push_back(group.number);
  return numbers;
}

TEST(DeviceGroupCache, TheLeastRecentlyUsedGoes) {
  DeviceGroupCache cache(2);
  EXPECT_EQ(cache.add(group_of(1)), Numbers{});
  EXPECT_EQ(cache.release(1, 0), Numbers{});
  EXPECT_EQ(cache.add(group_of(2)), Numbers{});
  EXPECT_EQ(cache.release(2, 0), Numbers{});
  cache.use(1);
  EXPECT_EQ(cache.release(1, 0), Numbers{});
  EXPECT_EQ(cache.add(group_of(3)), Numbers{2}) << "1 was used behind 2";
}

TEST(DeviceGroupCache, AGroupInUseStaysPastTheBoundAndIsNotOffered) {
  DeviceGroupCache cache(1);
  EXPECT_EQ(cache.add(group_of(1)), Numbers{});
  EXPECT_EQ(cache.add(group_of(2)), Numbers{});
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(offered(cache), Numbers{});
  EXPECT_EQ(cache.release(2, 0), Numbers{2}) << "the only one that may go";
  EXPECT_EQ(cache.release(1, 0), Numbers{});
  EXPECT_EQ(offered(cache), Numbers{1});
}

TEST(DeviceGroupCache, ABoundOfNothingKeepsWhatIsInUseOnly) {
  DeviceGroupCache cache(0);
  EXPECT_EQ(cache.add(group_of(1)), Numbers{});
  cache.use(1);
  EXPECT_EQ(cache.release(1, 0), Numbers{}) << "it has two users";
  EXPECT_EQ(cache.release(1, 0), Numbers{1});
  EXPECT_EQ(cache.size(), 0u);
}

TEST(DeviceGroupCache, BrokenGroupsAreKnownNoMore) {
  DeviceGroupCache cache(9);
  cache.add(group_of(1));
  cache.add(group_of(2));
  for (uint64_t number : {1, 2}) EXPECT_EQ(cache.release(number, 7), Numbers{});
  EXPECT_EQ(cache.offer().front().operations, 7u);
  cache.drop(1);
  EXPECT_EQ(offered(cache), Numbers{2});
  EXPECT_FALSE(cache.contains(1));
  EXPECT_EQ(cache.release(1, 8), Numbers{}) << "its user ends later";
}

TEST(DeviceGroupCache, WhatWasRevokedIsOfferedAsSuchWhenItIsReleased) {
  DeviceGroupCache cache(2);
  cache.add(group_of(1));
  cache.revoke(1);
  cache.revoke(5);  // Unknown: nothing.
  EXPECT_EQ(offered(cache), Numbers{});
  EXPECT_EQ(cache.release(1, 3), Numbers{});
  EXPECT_EQ(cache.offer().front(), (FormedGroup{1, 0, 2, 3, true}));
}

TEST(DeviceGroupCache, NeverGivesUpWhatIsInUseNorKeepsMoreThanTheBoundBesides) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    const size_t bound = rng.below(5);
    DeviceGroupCache cache(bound);
    std::map<uint64_t, int> users;
    auto check = [&](const Numbers& evicted) {
      for (uint64_t number : evicted) {
        ASSERT_EQ(users[number], 0) << "seed " << seed;
        users.erase(number);
      }
      const auto in_use = static_cast<size_t>(
          std::count_if(users.begin(), users.end(), [](const auto& each) { return each.second; }));
      ASSERT_EQ(cache.size(), users.size());
      ASSERT_LE(cache.size(), std::max(bound, in_use)) << "seed " << seed;
    };
    for (uint64_t number = 1; number <= 60; ++number) {
      users[number] = 1;
      check(cache.add(group_of(number)));
      for (uint64_t other = 1; other <= number; ++other) {
        if (!users.contains(other)) continue;
        if (rng.below(4) == 0) {
          ++users[other];
          cache.use(other);
        } else if (users[other] > 0 && rng.below(2) == 0) {
          --users[other];
          check(cache.release(other, 0));
        }
      }
    }
  }
}

}  // namespace
}  // namespace skein::plans
