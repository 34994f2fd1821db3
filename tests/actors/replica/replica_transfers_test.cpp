#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/replica/replica.hpp"
#include "tests/actors/replica/replica_rig.hpp"

namespace skein::actors {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kOneBucket = 25;  // comm.bucket_cap_mb

/// The first of two stages, with two micro-batches: it sends two activations and receives their
/// gradients.
struct LinkRig : ReplicaRig {
  explicit LinkRig(int64_t replicas = 1, gpu::NumberType type = gpu::NumberType::kFloat32)
      : ReplicaRig(2, replicas, replicas > 1, kOneBucket, "allreduce", true, true, 0, type) {}

  std::vector<bool> sent() const {
    std::vector<bool> sent;
    for (const TransferRequest& each : transfers) sent.push_back(each.is_sent);
    return sent;
  }
  void end_transfer(const absl::Status& status = absl::OkStatus()) {
    tell(TransferDone{transfers.back().key, status});
  }
  /// All that can be done, in the order of the device and then of the link.
  void run_step() {
    for (size_t ended = 0; end_all() > 0 || ended < transfers.size();) {
      if (ended < transfers.size()) {
        ASSERT_EQ(transfers.size(), ended + 1) << "one at a time";
        tell(TransferDone{transfers[ended++].key, absl::OkStatus()});
      }
    }
  }
};

TEST(ReplicaTransfers, OutputsLeaveInOrderOneAtATimeAndNotByTheHosts) {
  LinkRig rig;
  rig.start();
  EXPECT_THAT(rig.transfers, IsEmpty()) << "the first in the order is an activation";
  rig.end_one();
  EXPECT_THAT(rig.sent(), ElementsAre(true));
  EXPECT_EQ(rig.transfers[0].count, 2 * 4 * 4) << "rows * T * C";
  EXPECT_EQ(rig.transfers[0].peer, plans::WorkerId{2});
  rig.end_one();
  EXPECT_THAT(rig.sent(), ElementsAre(true)) << "the second one waits for its turn";
  rig.end_transfer();
  EXPECT_THAT(rig.sent(), ElementsAre(true, true));
  EXPECT_NE(rig.transfers[0].values.data(), nullptr);
  rig.end_transfer();
  EXPECT_THAT(rig.sent(), ElementsAre(true, true, false)) << "a gradient is awaited at once";
  EXPECT_EQ(rig.backwards(), 0);
  rig.end_transfer();
  EXPECT_EQ(rig.backwards(), 1);
  EXPECT_THAT(rig.plane->sent, IsEmpty());
  EXPECT_FALSE(rig.plane->streams.contains(net::schema::TensorKind::GRADIENT));
}

TEST(ReplicaTransfers, EveryStepPassesOnTheSame) {
  LinkRig rig;
  rig.start();
  for (uint64_t step : {0, 1, 2}) {
    rig.transfers.clear();
    rig.run_step();
    EXPECT_THAT(rig.sent(), ElementsAre(true, true, false, false)) << step;
    EXPECT_EQ(rig.transfers.front().key.step, step);
    EXPECT_EQ(rig.readies().size(), step + 1);
    rig.commit(step);
  }
  rig.end_all();
  EXPECT_EQ(rig.updates(), 3);
  EXPECT_THAT(rig.faults, IsEmpty());
}

TEST(ReplicaTransfers, Bfloat16ActivationsTakeHalfTheMemoryAndHalfTheBytes) {
  LinkRig rig(1, gpu::NumberType::kBfloat16);
  const auto memory = rig.link_memory.lock();
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ((*memory->take())->size(), 2u * 4u * 4u / 2) << "two numbers in a float's place";
  rig.start();
  rig.run_step();
  ASSERT_EQ(rig.transfers.size(), 4u);
  for (const TransferRequest& each : rig.transfers) {
    EXPECT_EQ(each.values.type(), gpu::NumberType::kBfloat16);
    EXPECT_EQ(each.count, 2 * 4 * 4);
  }
  EXPECT_EQ(rig.backwards(), 2) << "a gradient is whole when all of its numbers have come";
  EXPECT_THAT(rig.faults, IsEmpty());
}

TEST(ReplicaTransfers, TheActorAllocatesNothingOnTheDevice) {
  LinkRig rig;
  rig.start();
  for (uint64_t step : {0, 1, 2}) {
    rig.transfers.clear();
    rig.run_step();
    rig.commit(step);
  }
  rig.end_all();
  EXPECT_EQ(rig.device->allocations, rig.allocations_before)
      << "all of a link's memory was taken when it was formed";
}

TEST(ReplicaTransfers, ARetiredReplicaHasLetGoOfTheLinksMemory) {
  LinkRig rig;
  EXPECT_FALSE(rig.link_memory.expired());
  rig.start();
  rig.run_step();
  rig.transfers.clear();
  rig.tell(RetireReplicas{});
  rig.end_all();
  ASSERT_THAT(rig.retired, ElementsAre(0u));
  EXPECT_TRUE(rig.link_memory.expired()) << "the models of the next plan need it";
}

TEST(ReplicaTransfers, RetiresOnlyWhenNoTransferUsesItsMemory) {
  LinkRig rig;
  rig.start();
  rig.end_one();
  rig.tell(RetireReplicas{});
  rig.end_all();
  EXPECT_THAT(rig.retired, IsEmpty());
  rig.end_transfer(absl::UnavailableError("aborted"));
  EXPECT_THAT(rig.retired, ElementsAre(0u));
  EXPECT_THAT(rig.faults, IsEmpty()) << "an abort on purpose is no fault";
  EXPECT_EQ(rig.transfers.size(), 1u) << "nothing new is started";
}

TEST(ReplicaTransfers, ATransferThatFailsIsAFaultAndTheLastOne) {
  LinkRig rig;
  rig.start();
  rig.end_one();
  rig.end_transfer(absl::UnavailableError("a member is gone"));
  EXPECT_THAT(rig.faults, ElementsAre(absl::UnavailableError("a member is gone")));
  rig.end_all();
  EXPECT_EQ(rig.transfers.size(), 1u);
}

TEST(ReplicaTransfers, SumsTakeTheirTurnBehindTheTransfersOfTheStep) {
  LinkRig rig(2);
  rig.start();
  rig.run_step();
  EXPECT_EQ(rig.buckets.size(), 1u) << "the stage's group, on the same device";
  EXPECT_EQ(rig.transfers.size(), 4u);
}

}  // namespace
}  // namespace skein::actors
