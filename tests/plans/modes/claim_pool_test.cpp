#include "plans/modes/claim_pool.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

uint64_t finished_samples(const ClaimPool& pool) {
  uint64_t finished = 0;
  for (const auto& [pipeline, samples] : pool.state().by_pipeline) finished += samples;
  return finished;
}

TEST(ClaimPool, EachRangeIsFinishedExactlyOnceWhoeverDies) {
  constexpr int kEvents = 150000;
  constexpr uint64_t kSamples = 900'003, kEach = 8;
  constexpr uint32_t kPipelines = 6;
  ClaimPool pool(0, kSamples);
  Rng rng(5);
  std::vector<int> finished(kSamples);
  std::vector<std::vector<SampleClaim>> held(kPipelines);
  std::vector<uint64_t> samples_by_pipeline(kPipelines);
  uint64_t back = 0;   // Samples that have gone back and not been given again.
  uint64_t fresh = 0;  // The first sample that was never given.
  const auto finish_one = [&](uint32_t pipeline, size_t index) {
    const SampleClaim claim = held[pipeline][index];
    held[pipeline].erase(held[pipeline].begin() + static_cast<ptrdiff_t>(index));
    EXPECT_FALSE(pool.finish((pipeline + 1) % kPipelines, claim.first));
    EXPECT_TRUE(pool.finish(pipeline, claim.first));
    EXPECT_FALSE(pool.finish(pipeline, claim.first));
    for (uint64_t i = 0; i < claim.count; ++i) ++finished[claim.first + i];
    samples_by_pipeline[pipeline] += claim.count;
  };
  int deaths = 0;
  for (int event = 0; event < kEvents; ++event) {
    const auto pipeline = static_cast<uint32_t>(rng.below(kPipelines));
    const double draw = rng.uniform();
    if (draw < 0.02) {
      for (const SampleClaim& claim : held[pipeline]) back += claim.count;
      pool.forget(pipeline);
      for (const SampleClaim& claim : held[pipeline])
        EXPECT_FALSE(pool.finish(pipeline, claim.first));
      held[pipeline].clear();
      ++deaths;
    } else if (draw < 0.55) {
      const auto claim = pool.claim(pipeline, kEach);
      if (!claim) continue;
      held[pipeline].push_back(*claim);
      const bool is_fresh = claim->first == fresh;
      EXPECT_EQ(is_fresh, back == 0) << "fresh ranges only when nothing has come back";
      (is_fresh ? fresh : back) += is_fresh ? claim->count : -claim->count;
    } else if (!held[pipeline].empty()) {
      finish_one(pipeline, rng.below(held[pipeline].size()));
    }
    if (event % 100 == 0) pool.check_invariants();
  }
  EXPECT_GT(deaths, 1000);
  EXPECT_FALSE(pool.is_over());
  for (uint32_t pipeline = 0; pipeline < kPipelines; ++pipeline) {
    while (!held[pipeline].empty()) finish_one(pipeline, 0);
  }
  while (const auto claim = pool.claim(2, kEach)) {
    held[2].push_back(*claim);
    finish_one(2, 0);
  }
  EXPECT_TRUE(pool.is_over());
  EXPECT_EQ(finished_samples(pool), kSamples);
  for (uint64_t i = 0; i < kSamples; ++i) ASSERT_EQ(finished[i], 1) << i;
  for (uint32_t pipeline = 0; pipeline < kPipelines; ++pipeline) {
    EXPECT_EQ(pool.state().by_pipeline.at(pipeline), samples_by_pipeline[pipeline]);
  }
}

TEST(ClaimPool, GivesWhatADeadPipelineHeldFirstAndInOrder) {
  ClaimPool pool(0, 100);
  for (int i = 0; i < 3; ++i) pool.claim(1, 10);
  pool.claim(2, 10);
  pool.forget(1);
  EXPECT_EQ(pool.claim(2, 10), (SampleClaim{0, 10}));
  EXPECT_EQ(pool.claim(2, 10), (SampleClaim{10, 10}));
  EXPECT_EQ(pool.claim(2, 10), (SampleClaim{20, 10}));
  EXPECT_EQ(pool.claim(2, 10), (SampleClaim{40, 10}));
}

TEST(ClaimPool, GivesEachAsMuchAsItCanTake) {
  ClaimPool pool(0, 24);
  EXPECT_EQ(pool.claim(0, 12), (SampleClaim{0, 12}));
  EXPECT_EQ(pool.claim(1, 4), (SampleClaim{12, 4}));
  pool.forget(0);
  EXPECT_EQ(pool.claim(1, 4), (SampleClaim{0, 4})) << "a part of what the large one held";
  EXPECT_EQ(pool.claim(2, 12), (SampleClaim{4, 8})) << "the rest of it";
  EXPECT_EQ(pool.claim(2, 12), (SampleClaim{16, 8}));
  pool.check_invariants();
  for (uint64_t first : {0, 12}) EXPECT_TRUE(pool.finish(1, first));
  for (uint64_t first : {4, 16}) EXPECT_TRUE(pool.finish(2, first));
  EXPECT_TRUE(pool.is_over());
  EXPECT_EQ(finished_samples(pool), 24u);
}

TEST(ClaimPool, TheLastClaimIsShorterAndNoneFollows) {
  ClaimPool pool(0, 25);
  pool.claim(0, 10);
  pool.claim(0, 10);
  EXPECT_EQ(pool.claim(1, 10), (SampleClaim{20, 5}));
  EXPECT_EQ(pool.claim(1, 10), std::nullopt);
  EXPECT_FALSE(pool.is_over());
}

TEST(ClaimPool, APipelineThatHasEndedMayAskAgainWhenAnotherOneDies) {
  ClaimPool pool(0, 20);
  pool.claim(0, 10);
  pool.claim(1, 10);
  EXPECT_TRUE(pool.finish(0, 0));
  EXPECT_EQ(pool.claim(0, 10), std::nullopt);
  pool.forget(1);
  EXPECT_EQ(pool.claim(0, 10), (SampleClaim{10, 10}));
  EXPECT_TRUE(pool.finish(0, 10));
  EXPECT_TRUE(pool.is_over());
}

TEST(ClaimPool, ARoundOfNoSamplesIsOver) {
  ClaimPool pool(0, 0);
  EXPECT_TRUE(pool.is_over());
  EXPECT_EQ(pool.claim(0, 10), std::nullopt);
}

TEST(ClaimPool, WhatIsUndoneIsGivenAgain) {
  ClaimPool pool(0, 6);
  const std::optional<SampleClaim> lost = pool.claim(0, 2);
  const std::optional<SampleClaim> kept = pool.claim(1, 2);
  ASSERT_TRUE(lost && kept);
  EXPECT_TRUE(pool.finish(0, lost->first));
  EXPECT_TRUE(pool.finish(1, kept->first));
  pool.forget(0);
  pool.undo(0, *lost);
  EXPECT_EQ(finished_samples(pool), 2u);
  EXPECT_EQ(pool.claim(1, 2), lost) << "before what nobody had";
  EXPECT_TRUE(pool.finish(1, lost->first));
  EXPECT_FALSE(pool.is_over());
  const std::optional<SampleClaim> last = pool.claim(1, 2);
  EXPECT_TRUE(pool.finish(1, last->first));
  EXPECT_TRUE(pool.is_over());
  EXPECT_EQ(finished_samples(pool), 6u);
}

}  // namespace
}  // namespace skein::plans
