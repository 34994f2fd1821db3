#include "plans/coordinator/shard_transfers.hpp"

#include <gtest/gtest.h>

#include "tests/plans/small_cluster.hpp"

namespace skein::plans {
namespace {

constexpr double kPatienceSeconds = 10;
constexpr uint64_t kPatienceUs = 10'000'000;

ReceiveShard shard(int32_t stage, uint64_t steps_done) {
  ReceiveShard made;
  made.generation = 1;
  made.sender = {static_cast<uint32_t>(stage) + 1};
  made.stage = stage;
  made.stage_count = 2;
  made.layers = {2 * stage, 2 * stage + 2};
  made.steps_done = steps_done;
  return made;
}

/// What is received next by these decisions; steps and stage, or none.
std::optional<std::pair<uint64_t, int32_t>> received(const CoordinatorDecisions& decisions) {
  const auto* found = find<ReceiveShard>(decisions);
  if (found == nullptr) return std::nullopt;
  return std::pair(found->steps_done, found->stage);
}

TEST(ShardTransfers, OneIsReceivedAfterTheOther) {
  ShardTransfers transfers(kPatienceSeconds);
  EXPECT_EQ(received(transfers.on_sent(shard(0, 5), 1).decisions()), std::pair(uint64_t{5}, 0));
  EXPECT_EQ(received(transfers.on_sent(shard(1, 5), 1).decisions()), std::nullopt);
  EXPECT_EQ(received(transfers.on_sent(shard(0, 10), 1).decisions()), std::nullopt);
  EXPECT_EQ(received(transfers.on_ended(0, 5, 2).decisions()), std::pair(uint64_t{5}, 1));
  EXPECT_EQ(received(transfers.on_ended(1, 5, 3).decisions()), std::pair(uint64_t{10}, 0));
  EXPECT_TRUE(transfers.on_ended(0, 10, 4).is_accepted());
  transfers.check_invariants();
}

TEST(ShardTransfers, ARepeatAndWhatNobodyAwaitsChangeNothing) {
  ShardTransfers transfers(kPatienceSeconds);
  EXPECT_EQ(transfers.on_layer(0, 5, 1), DropReason::kUnexpected);
  EXPECT_EQ(transfers.on_ended(0, 5, 1).why_dropped(), DropReason::kUnexpected);
  EXPECT_TRUE(transfers.on_sent(shard(0, 5), 1).is_accepted());
  EXPECT_TRUE(transfers.on_sent(shard(1, 5), 1).is_accepted());
  EXPECT_EQ(transfers.on_sent(shard(0, 5), 1).why_dropped(), DropReason::kRepeated);
  EXPECT_EQ(transfers.on_sent(shard(1, 5), 1).why_dropped(), DropReason::kRepeated);
  EXPECT_EQ(transfers.on_layer(1, 5, 1), DropReason::kUnexpected) << "it waits";
  EXPECT_EQ(transfers.on_layer(0, 5, 1), std::nullopt);
  EXPECT_EQ(transfers.on_layer(0, 5, 1), std::nullopt);
  EXPECT_EQ(transfers.on_layer(0, 5, 1), DropReason::kRepeated) << "the stage has two layers";
  transfers.end_generation();
  EXPECT_EQ(transfers.on_ended(0, 5, 2).why_dropped(), DropReason::kUnexpected);
}

TEST(ShardTransfers, ALayerIsWaitedForAndTheDiskIs) {
  ShardTransfers transfers(kPatienceSeconds);
  EXPECT_EQ(transfers.overdue(kPatienceUs * 9), nullptr) << "nothing is received";
  transfers.on_sent(shard(0, 5), 100);
  EXPECT_EQ(transfers.overdue(99 + kPatienceUs), nullptr);
  EXPECT_NE(transfers.overdue(100 + kPatienceUs), nullptr);
  EXPECT_EQ(transfers.on_layer(0, 5, 200), std::nullopt);
  EXPECT_EQ(transfers.overdue(100 + kPatienceUs), nullptr) << "another layer has come since";
  EXPECT_EQ(transfers.on_layer(0, 5, 300), std::nullopt);
  EXPECT_EQ(transfers.overdue(kPatienceUs * 9), nullptr) << "all is there: it is being written";
}

}  // namespace
}  // namespace skein::plans
