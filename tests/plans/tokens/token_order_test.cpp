#include "plans/tokens/token_order.hpp"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "plans/tokens/sub_models.hpp"

namespace skein::plans {
namespace {

constexpr WorkerId kLeft{1}, kRight{2};
const LevelWorkers kBoth = {{kLeft, kRight}, {kLeft, kRight}};

void make_output(TokenPool& pool, WorkerId worker, TokenId id) {
  pool.claim(id, worker);
  ASSERT_TRUE(pool.on_output(worker, id).is_accepted());
}

/// Two tokens of the second level are ready: the first was made by worker 1, the other by worker 2.
TokenPool half_way() {
  TokenPool pool({16, {2, 4}});
  for (uint32_t index : {2u, 3u}) make_output(pool, kRight, {0, index});
  for (uint32_t index : {0u, 1u}) make_output(pool, kLeft, {0, index});
  return pool;
}

std::optional<TokenId> choose(const TokenPool& pool, WorkerId worker, TokenPolicy policy,
                              const LevelWorkers& level_workers = kBoth) {
  const TokenBuckets buckets(pool.shape(), level_workers,
                             std::vector<double>(level_workers.front().size(), 1));
  return choose_token(pool, policy, buckets, {worker});
}

TEST(TokenOrder, DepthFirstTakesTheDeepestWithMostInputsAtHand) {
  const TokenPool pool = half_way();
  for (const bool own : {false, true}) {
    EXPECT_EQ(choose(pool, kLeft, {true, own}), (TokenId{1, 0}));
    EXPECT_EQ(choose(pool, kRight, {true, own}), (TokenId{1, 1}));
  }
}

TEST(TokenOrder, WithoutItTokensGoAsTheyBecameReady) {
  const TokenPool pool = half_way();
  EXPECT_EQ(choose(pool, kLeft, {false, false}), (TokenId{0, 4}));
}

TEST(TokenOrder, AWorkerEmptiesItsOwnBucketAndThenHelpsTheFullest) {
  TokenPool pool({16, {2}});
  const LevelWorkers three = {{kLeft, kRight, {3}}};
  const TokenBuckets buckets(pool.shape(), three, {1, 2, 1});
  EXPECT_EQ(buckets.owner_of(pool, {0, 1}), kLeft);
  EXPECT_EQ(buckets.owner_of(pool, {0, 5}), kRight);
  EXPECT_EQ(buckets.owner_of(pool, {0, 6}), (WorkerId{3}));
  for (uint32_t index : {0u, 1u}) {
    EXPECT_EQ(choose_token(pool, {}, buckets, {kLeft}), (TokenId{0, index}));
    pool.claim({0, index}, kLeft);
  }
  EXPECT_EQ(choose_token(pool, {}, buckets, {kLeft}), (TokenId{0, 2})) << "of the fullest";
  EXPECT_FALSE(choose_token(pool, {}, buckets, {kLeft, /*helps=*/false}));
}

/// Six of eight workers made outputs that neither of the two has.
TEST(TokenOrder, TokensWithoutAnInputAtHandAreSharedByThoseWhoMayTrainThem) {
  const LevelWorkers few = {{{1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}}, {{3}, {6}}};
  TokenPool pool({16, {1, 2}});
  const TokenBuckets buckets(pool.shape(), few, std::vector<double>(8, 1));
  for (uint32_t index = 0; index < 16; ++index) {
    make_output(pool, buckets.owner_of(pool, {0, index}), {0, index});
  }
  std::map<WorkerId, int> owned;
  for (uint32_t index = 0; index < 8; ++index) ++owned[buckets.owner_of(pool, {1, index})];
  EXPECT_EQ(owned, (std::map<WorkerId, int>{{{3}, 4}, {{6}, 4}}));
  EXPECT_EQ(buckets.owner_of(pool, {1, 2}), (WorkerId{3})) << "it has the inputs";
}

TEST(TokenOrder, NobodyIsGivenWhatItMayNotTrain) {
  const TokenPool pool = half_way();
  const LevelWorkers few = {{kLeft, kRight}, {kRight}};
  EXPECT_EQ(choose(pool, kLeft, {}, few), (TokenId{0, 4})) << "its own of the first level";
  EXPECT_EQ(choose(pool, kRight, {}, few), (TokenId{1, 1}));
  EXPECT_FALSE(choose(pool, {3}, {}, few));
}

TEST(TokenOrder, WhoKeepsTokensFromOthersIsGrantedFewerAheadUntilItComesToMore) {
  constexpr uint32_t kMost = 3;
  EXPECT_EQ(ahead_in_next_step({3, 2, false}, kMost), 3u);
  EXPECT_EQ(ahead_in_next_step({3, 3, true}, kMost), 2u);
  EXPECT_EQ(ahead_in_next_step({1, 1, true}, kMost), 1u) << "one at least";
  EXPECT_EQ(ahead_in_next_step({1, 1, false}, kMost), 1u);
  EXPECT_EQ(ahead_in_next_step({2, 4, true}, kMost), 1u);
  EXPECT_EQ(ahead_in_next_step({2, 5, true}, kMost), 3u) << "it came to many more than that";
  EXPECT_EQ(ahead_in_next_step({2, 3, false}, kMost), 3u);
  EXPECT_EQ(ahead_in_next_step({3, 9, false}, kMost), 3u);
}

TEST(SubModels, LayersOfLikeThresholdsBelongTogether) {
  const std::vector<int64_t> thresholds = {16, 16, 20, 64, 64, 2048, 2048};
  const auto cut = [&](size_t most) { return bin_sub_models(thresholds, most); };
  EXPECT_EQ(cut(3), (std::vector<LayerRange>{{0, 3}, {3, 5}, {5, 7}}));
  EXPECT_EQ(cut(2), (std::vector<LayerRange>{{0, 5}, {5, 7}}));
  EXPECT_EQ(cut(1), (std::vector<LayerRange>{{0, 7}}));
  EXPECT_EQ(cut(9), cut(3)) << "no more than are unlike";
}

TEST(SubModels, AThresholdIsWhereARowTakesHardlyLonger) {
  Profile profile;
  profile.rows = {1, 16, 64, 256};
  profile.layers.resize(2);
  for (int64_t rows : profile.rows) {
    for (size_t layer = 0; layer < 2; ++layer) {
      const int64_t flat = layer == 0 ? 16 : 64;
      profile.layers[layer].at.push_back({static_cast<double>(std::max(rows, flat)), 0, 0});
    }
  }
  EXPECT_EQ(threshold_rows(profile), (std::vector<int64_t>{16, 64}));
}

}  // namespace
}  // namespace skein::plans
