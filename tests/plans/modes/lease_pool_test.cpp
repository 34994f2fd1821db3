#include "plans/modes/lease_pool.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

TEST(LeasePool, EachRangeIsFinishedExactlyOnceWhoeverDies) {
  constexpr int kEvents = 150000;
  constexpr uint64_t kSamples = 900'003, kEach = 8;
  constexpr uint32_t kColumns = 6;
  LeasePool pool(kSamples, kEach);
  Rng rng(5);
  std::vector<int> finished(kSamples);
  std::vector<std::vector<SampleLease>> held(kColumns);
  std::vector<uint64_t> samples_by_column(kColumns);
  uint64_t back = 0;   // Samples that have gone back and not been given again.
  uint64_t fresh = 0;  // The first sample that was never given.
  const auto finish_one = [&](uint32_t column, size_t index) {
    const SampleLease lease = held[column][index];
    held[column].erase(held[column].begin() + static_cast<ptrdiff_t>(index));
    EXPECT_FALSE(pool.finish((column + 1) % kColumns, lease.first));
    EXPECT_TRUE(pool.finish(column, lease.first));
    EXPECT_FALSE(pool.finish(column, lease.first));
    for (uint64_t i = 0; i < lease.count; ++i) ++finished[lease.first + i];
    samples_by_column[column] += lease.count;
  };
  int deaths = 0;
  for (int event = 0; event < kEvents; ++event) {
    const auto column = static_cast<uint32_t>(rng.below(kColumns));
    const double draw = rng.uniform();
    if (draw < 0.02) {
      for (const SampleLease& lease : held[column]) back += lease.count;
      EXPECT_EQ(pool.forget(column), !held[column].empty());
      for (const SampleLease& lease : held[column]) EXPECT_FALSE(pool.finish(column, lease.first));
      held[column].clear();
      ++deaths;
    } else if (draw < 0.55) {
      const auto lease = pool.lease(column);
      if (!lease) continue;
      held[column].push_back(*lease);
      const bool is_fresh = lease->first == fresh;
      EXPECT_EQ(is_fresh, back == 0) << "fresh ranges only when nothing has come back";
      (is_fresh ? fresh : back) += is_fresh ? lease->count : -lease->count;
    } else if (!held[column].empty()) {
      finish_one(column, rng.below(held[column].size()));
    }
  }
  EXPECT_GT(deaths, 1000);
  EXPECT_FALSE(pool.is_over());
  for (uint32_t column = 0; column < kColumns; ++column) {
    while (!held[column].empty()) finish_one(column, 0);
  }
  while (const auto lease = pool.lease(2)) {
    held[2].push_back(*lease);
    finish_one(2, 0);
  }
  EXPECT_TRUE(pool.is_over());
  EXPECT_EQ(pool.finished_samples(), kSamples);
  for (uint64_t i = 0; i < kSamples; ++i) ASSERT_EQ(finished[i], 1) << i;
  for (uint32_t column = 0; column < kColumns; ++column) {
    EXPECT_EQ(pool.state().by_column.at(column), samples_by_column[column]);
  }
}

TEST(LeasePool, GivesWhatADeadColumnHeldFirstAndInOrder) {
  LeasePool pool(100, 10);
  for (int i = 0; i < 3; ++i) pool.lease(1);
  pool.lease(2);
  EXPECT_TRUE(pool.forget(1));
  EXPECT_EQ(pool.lease(2), (SampleLease{0, 10}));
  EXPECT_EQ(pool.lease(2), (SampleLease{10, 10}));
  EXPECT_EQ(pool.lease(2), (SampleLease{20, 10}));
  EXPECT_EQ(pool.lease(2), (SampleLease{40, 10}));
}

TEST(LeasePool, TheLastLeaseIsShorterAndNoneFollows) {
  LeasePool pool(25, 10);
  pool.lease(0);
  pool.lease(0);
  EXPECT_EQ(pool.lease(1), (SampleLease{20, 5}));
  EXPECT_EQ(pool.lease(1), std::nullopt);
  EXPECT_FALSE(pool.is_over());
}

TEST(LeasePool, AColumnThatHasEndedMayAskAgainWhenAnotherOneDies) {
  LeasePool pool(20, 10);
  pool.lease(0);
  pool.lease(1);
  EXPECT_TRUE(pool.finish(0, 0));
  EXPECT_EQ(pool.lease(0), std::nullopt);
  EXPECT_TRUE(pool.forget(1));
  EXPECT_EQ(pool.lease(0), (SampleLease{10, 10}));
  EXPECT_TRUE(pool.finish(0, 10));
  EXPECT_TRUE(pool.is_over());
}

TEST(LeasePool, GoesOnFromItsState) {
  LeasePool before(100, 10);
  before.lease(0);
  before.lease(1);
  before.lease(2);
  before.finish(1, 10);
  before.forget(2);
  LeasePool after(before.state());
  EXPECT_EQ(after.finished_samples(), 10u);
  EXPECT_TRUE(after.finish(0, 0));
  EXPECT_EQ(after.lease(0), (SampleLease{20, 10}));
  EXPECT_EQ(after.lease(0), (SampleLease{30, 10}));
}

TEST(LeasePool, ARunOfNoSamplesIsOver) {
  LeasePool pool(0, 10);
  EXPECT_TRUE(pool.is_over());
  EXPECT_EQ(pool.lease(0), std::nullopt);
}

TEST(LeasePool, WhatIsUndoneIsGivenAgain) {
  LeasePool pool(6, 2);
  const std::optional<SampleLease> lost = pool.lease(0);
  const std::optional<SampleLease> kept = pool.lease(1);
  ASSERT_TRUE(lost && kept);
  EXPECT_TRUE(pool.finish(0, lost->first));
  EXPECT_TRUE(pool.finish(1, kept->first));
  pool.forget(0);
  pool.undo(0, *lost);
  EXPECT_EQ(pool.finished_samples(), 2u);
  EXPECT_EQ(pool.lease(1), lost) << "before what nobody had";
  EXPECT_TRUE(pool.finish(1, lost->first));
  EXPECT_FALSE(pool.is_over());
  const std::optional<SampleLease> last = pool.lease(1);
  EXPECT_TRUE(pool.finish(1, last->first));
  EXPECT_TRUE(pool.is_over());
  EXPECT_EQ(pool.finished_samples(), 6u);
}

}  // namespace
}  // namespace skein::plans
