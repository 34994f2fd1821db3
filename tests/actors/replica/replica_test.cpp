#include "actors/replica/replica.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/actors/replica/replica_rig.hpp"

namespace skein::actors {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Body = RecordingLink::Body;

/// A step of two micro-batches on one stage: two forwards and two backwards.
constexpr int kStepWork = 4;

TEST(Replica, AStartTwiceRunsTheStepOnce) {
  for (int ended_before = 0; ended_before <= kStepWork; ++ended_before) {
    ReplicaRig rig;
    EXPECT_EQ(rig.end_all(), 0) << "nothing runs before the start";
    rig.start();
    for (int i = 0; i < ended_before; ++i) rig.end_one();
    rig.start();
    rig.end_all();
    EXPECT_EQ(rig.forwards(), 2);
    EXPECT_EQ(rig.backwards(), 2);
    EXPECT_THAT(rig.readies(), ElementsAre(0u)) << "start repeated after " << ended_before;
  }
}

TEST(Replica, ADeviceIsToldWhichPieceOfTheStepItsWorkIs) {
  ReplicaRig rig;
  rig.start();
  rig.end_all();
  rig.commit(0);
  rig.end_all();
  std::map<int32_t, std::vector<int32_t>> indices;  // By step.
  for (const plans::WorkPiece& piece : rig.device->pieces) {
    EXPECT_EQ(piece.device, 0) << "worker 1";
    if (piece.index >= 0) indices[piece.step].push_back(piece.index);
  }
  EXPECT_THAT(indices[0], ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(indices[1], ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(indices.size(), 2u);
  EXPECT_GT(rig.device->pieces.size(), 2u * kStepWork) << "the update, which never sleeps";
}

TEST(Replica, ACommitBeforeReadyHasNoEffect) {
  for (int ended_before = 0; ended_before < kStepWork; ++ended_before) {
    ReplicaRig rig;
    rig.commit(0);
    rig.start();
    for (int i = 0; i < ended_before; ++i) rig.end_one();
    rig.commit(0);
    rig.end_all();
    EXPECT_EQ(rig.updates(), 0) << "commit after " << ended_before;
    EXPECT_THAT(rig.readies(), ElementsAre(0u));
    rig.commit(0);
    rig.end_all();
    EXPECT_EQ(rig.updates(), 1) << "the commit that counts";
    EXPECT_THAT(rig.readies(), ElementsAre(0u, 1u));
  }
}

TEST(Replica, ACommitTwiceAppliesTheUpdateOnce) {
  for (int ended_before = 0; ended_before <= 1 + kStepWork; ++ended_before) {
    ReplicaRig rig;
    rig.start();
    rig.end_all();
    rig.commit(0);
    for (int i = 0; i < ended_before; ++i) rig.end_one();
    rig.commit(0);
    rig.end_all();
    EXPECT_EQ(rig.updates(), 1) << "commit repeated after " << ended_before;
    EXPECT_THAT(rig.readies(), ElementsAre(0u, 1u));
  }
}

TEST(Replica, ACommitOfAnotherStepIsDropped) {
  ReplicaRig rig;
  rig.start();
  rig.end_all();
  rig.commit(1);
  rig.commit(7);
  EXPECT_EQ(rig.updates(), 0);
  rig.commit(0);
  rig.end_all();
  rig.commit(0);
  EXPECT_EQ(rig.updates(), 1);
  rig.commit(1);
  EXPECT_EQ(rig.updates(), 2);
}

TEST(Replica, SignalsReadyOncePerStepAndStopsAfterTheLastCommit) {
  ReplicaRig rig;
  for (uint64_t step = 0; step < 5; ++step) {
    rig.start();
    rig.end_all();
    rig.start();
    rig.commit(step, step == 4);
    rig.commit(step, step == 4);
  }
  rig.end_all();
  rig.start();
  rig.commit(5);
  EXPECT_EQ(rig.end_all(), 0);
  EXPECT_THAT(rig.readies(), ElementsAre(0u, 1u, 2u, 3u, 4u));
  EXPECT_EQ(rig.updates(), 5);
  EXPECT_EQ(rig.forwards(), 10);
  EXPECT_THAT(rig.faults, IsEmpty());
}

TEST(Replica, WhatOnlyACoordinatorOrWorkerTakesIsDropped) {
  ReplicaRig rig;
  rig.start();
  rig.control(net::Stop());
  rig.control(net::Joined());
  rig.control(plans::ReadyReport());
  rig.control(net::HeartbeatAck());
  rig.end_all();
  EXPECT_THAT(rig.readies(), ElementsAre(0u));
  EXPECT_THAT(rig.faults, IsEmpty());
}

TEST(Replica, WhatItDroppedIsToldOnceByReason) {
  ReplicaRig rig;
  rig.start();
  rig.start();
  rig.control(net::Stop());
  rig.tell(HeartbeatAtom::value);
  rig.tell(HeartbeatAtom::value);
  ASSERT_EQ(rig.dropped.size(), 2u);
  EXPECT_EQ(rig.dropped[0].total(), 2u);
  EXPECT_EQ(rig.dropped[0].of(plans::DropReason::kRepeated), 1u);
  EXPECT_EQ(rig.dropped[0].of(plans::DropReason::kUnexpected), 1u);
  EXPECT_EQ(rig.dropped[1].total(), 0u);
}

TEST(Replica, AReductionBeginsWithTheLastActionAndWaitsForNobodysWord) {
  ReplicaRig rig(1, 2);
  rig.start();
  for (int ended = 0; ended < kStepWork; ++ended) {
    EXPECT_THAT(rig.reductions, IsEmpty()) << "before the gradient is complete";
    rig.end_one();
  }
  EXPECT_THAT(rig.readies(), ElementsAre(0u));
  EXPECT_THAT(rig.reductions, ElementsAre(0u));
}

TEST(Replica, AReductionIsReportedOnceAndAwaitedByTheCommit) {
  ReplicaRig rig(1, 2);
  rig.start();
  rig.reduced(0, 0);
  rig.end_all();
  rig.commit(0);
  EXPECT_EQ(rig.end_all(), 0) << "a reduction that was not asked for";
  rig.reduced(99, 0);
  rig.reduced(0, 7);
  rig.commit(0);
  EXPECT_EQ(rig.end_all(), 0) << "of another group, of another step";
  rig.reduced(0, 0);
  rig.reduced(0, 0);
  EXPECT_EQ(rig.end_all(), 1) << "the norm";
  EXPECT_EQ(rig.link->bodies(Body::REDUCED).size(), 1u);
  EXPECT_EQ(rig.updates(), 0);
  rig.commit(0);
  rig.end_all();
  rig.reduced(0, 0);
  EXPECT_EQ(rig.end_all(), 0) << "late";
  EXPECT_EQ(rig.updates(), 1);
  EXPECT_THAT(rig.reductions, ElementsAre(0u, 1u));
  EXPECT_THAT(rig.readies(), ElementsAre(0u, 1u));
}

TEST(Replica, AReductionTwiceDoesNotStandForThatOfAnotherGroup) {
  ReplicaRig rig(2, 2, true);
  ASSERT_EQ(rig.group_ids.size(), 2u) << "the stage's and that of the tied embedding";
  rig.start();
  rig.gradient(0, 0);
  rig.gradient(0, 1);
  rig.end_all();
  rig.reduced(rig.group_ids[0], 0);
  rig.reduced(rig.group_ids[0], 0);
  EXPECT_EQ(rig.end_all(), 0);
  rig.reduced(rig.group_ids[1], 0);
  EXPECT_EQ(rig.end_all(), 1) << "the norm";
  EXPECT_EQ(rig.link->bodies(Body::REDUCED).size(), 1u);
}

TEST(Replica, AnInputTwiceLateOrEarlyIsUsedOnceInTheOrderOfTheSchedule) {
  ReplicaRig rig(2, 1);
  rig.gradient(1, 0);
  rig.start();
  rig.gradient(0, 1);
  rig.end_all();
  EXPECT_EQ(rig.forwards(), 2);
  EXPECT_EQ(rig.backwards(), 0) << "a lost input holds the step up";
  rig.gradient(0, 0);
  rig.gradient(0, 0);
  rig.gradient(0, 1);
  rig.end_all();
  EXPECT_EQ(rig.backwards(), 2);
  EXPECT_THAT(rig.readies(), ElementsAre(0u));
  rig.commit(0);
  rig.gradient(0, 0);
  rig.end_all();
  EXPECT_EQ(rig.backwards(), 3) << "the early one of step 1, none of step 0";
  rig.gradient(1, 1);
  rig.end_all();
  EXPECT_THAT(rig.readies(), ElementsAre(0u, 1u));
  EXPECT_EQ(rig.plane->sent.size(), 4u) << "one activation for each micro-batch";
}

TEST(Replica, AnErrorOfMemoryInAStepSaysWhatThePlanCountsOn) {
  ReplicaRig rig;
  rig.start();
  EXPECT_TRUE(rig.end_one(absl::ResourceExhaustedError("no memory")));
  ASSERT_EQ(rig.faults.size(), 1u);
  EXPECT_TRUE(absl::IsResourceExhausted(rig.faults[0]));
  EXPECT_THAT(std::string(rig.faults[0].message()),
              testing::StartsWith("no memory; the plan counts on "));
}

TEST(Replica, ADeviceErrorBecomesAFaultAndNoReadySignal) {
  for (int ended_before = 0; ended_before < kStepWork; ++ended_before) {
    ReplicaRig rig;
    rig.start();
    for (int i = 0; i < ended_before; ++i) rig.end_one();
    EXPECT_TRUE(rig.end_one(absl::InternalError("the device is lost")));
    ASSERT_EQ(rig.faults.size(), 1u);
    EXPECT_EQ(rig.faults[0], absl::InternalError("the device is lost"));
    rig.end_all();
    rig.commit(0);
    EXPECT_THAT(rig.readies(), IsEmpty()) << "error after " << ended_before;
    EXPECT_EQ(rig.updates(), 0);
    EXPECT_EQ(rig.faults.size(), 1u);
  }
}

TEST(Replica, AnErrorOfAReductionBecomesAFault) {
  ReplicaRig rig(1, 2);
  rig.start();
  rig.end_all();
  rig.tell(ReductionDone{{0}, 0, 0, absl::UnavailableError("a member is gone")});
  EXPECT_THAT(rig.faults, ElementsAre(absl::UnavailableError("a member is gone")));
  rig.end_all();
  EXPECT_THAT(rig.link->bodies(Body::REDUCED), IsEmpty());
}

TEST(Replica, AShardThatIsNotWrittenIsReportedAndNoFault) {
  ReplicaRig rig;
  rig.start();
  rig.tell(ShardWritten{1, 0, absl::UnavailableError("disk full")});
  EXPECT_THAT(rig.faults, IsEmpty());
  const auto saved = rig.link->bodies(Body::SHARD_SAVED);
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(std::string(saved[0].getShardSaved().getError()), "disk full");
}

TEST(Replica, NewsForTheTraceDoNotDisturbTheRun) {
  auto messages = [](bool disturbed, bool profiled) {
    ReplicaRig rig;
    auto disturb = [&] {
      if (!disturbed) return;
      rig.tell(ClockOffset{-1'000'000'000'000});
      rig.tell(TensorSent{0, "0SEND_F0", 0, 0});
    };
    disturb();
    rig.start();
    for (uint64_t step = 0; step < 3; ++step) {
      do disturb();
      while (rig.end_one());
      rig.commit(step, step == 2, profiled);
    }
    rig.end_all();
    EXPECT_EQ(rig.updates(), 3);
    EXPECT_THAT(rig.readies(), ElementsAre(0u, 1u, 2u));
    EXPECT_THAT(rig.faults, IsEmpty());
    return rig.link->kinds();
  };
  for (bool profiled : {false, true})
    EXPECT_EQ(messages(true, profiled), messages(false, profiled));
}

}  // namespace
}  // namespace skein::actors
