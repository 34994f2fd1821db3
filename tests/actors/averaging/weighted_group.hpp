#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "actors/averaging/weight_exchange.hpp"
#include "plans/base/rng.hpp"

namespace skein::actors {

/// Replicas' ids are not their indices in a test.
inline constexpr uint32_t kFirstReplica = 10;

/// Members `indices` with weights that add up to 1 and are not alike.
inline std::vector<plans::GroupMember> members_of(const std::vector<uint32_t>& indices) {
  std::vector<plans::GroupMember> members;
  const auto k = static_cast<double>(indices.size());
  for (uint32_t i : indices) {
    const double weight = 2 * static_cast<double>(members.size() + 1) / (k * (k + 1));
    members.push_back({.replica = {kFirstReplica + i}, .step = 0, .weight = weight});
  }
  return members;
}

/// What replica `i` puts into group `number`.
inline std::vector<float> values_of(uint32_t i, uint64_t number, size_t floats) {
  plans::Rng rng(number, i);
  std::vector<float> values(floats);
  for (float& value : values) value = static_cast<float>(2 * rng.uniform() - 1);
  return values;
}

/// What the replicas have ended groups with: by replica, in order.
using Results = std::vector<std::vector<WeightExchange::Done>>;

/// The newest result of all members is the weighted mean, with the same bits.
inline void expect_mean(const Results& results, uint64_t number,
                        const std::vector<uint32_t>& indices, size_t floats) {
  const std::vector<plans::GroupMember> members = members_of(indices);
  std::vector<double> mean(floats);
  for (size_t m = 0; m < members.size(); ++m) {
    const std::vector<float> values = values_of(indices[m], number, floats);
    for (size_t f = 0; f < floats; ++f) mean[f] += members[m].weight * double{values[f]};
  }
  for (uint32_t i : indices) {
    ASSERT_FALSE(results[i].empty()) << i;
    const WeightExchange::Done& done = results[i].back();
    ASSERT_EQ(done.number, number) << i;
    ASSERT_EQ(done.values.size(), floats);
    const std::vector<float>& first = results[indices[0]].back().values;
    ASSERT_TRUE(std::equal(first.begin(), first.end(), done.values.begin())) << i;
    for (size_t f = 0; f < floats; ++f) ASSERT_NEAR(done.values[f], mean[f], 1e-6) << f;
  }
}

}  // namespace skein::actors
