#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/replica/replica.hpp"
#include "tests/actors/replica/replica_rig.hpp"

namespace skein::actors {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Body = RecordingLink::Body;

constexpr double kLayerByLayer = 1e-9;  // comm.bucket_cap_mb
/// A stage of four layers, of which there are two replicas: two forwards, a backward, four parts.
constexpr int kReducedStepWork = 7;
constexpr int32_t kBuckets = 4;

struct BucketRig : ReplicaRig {
  BucketRig() : ReplicaRig(1, 2, false, kLayerByLayer) { start(); }
  std::vector<int32_t> started() const {
    std::vector<int32_t> numbers;
    for (const ReductionRequest& request : buckets) numbers.push_back(request.bucket);
    return numbers;
  }
};

TEST(ReplicaReductions, BucketsGoOutInOrderAsTheLastBackwardCompletesThem) {
  BucketRig rig;
  for (int i = 0; i < 3; ++i) rig.end_one();
  EXPECT_THAT(rig.started(), IsEmpty()) << "only the last micro-batch completes gradients";
  rig.end_one();
  EXPECT_THAT(rig.started(), ElementsAre(0));
  rig.end_one();
  EXPECT_THAT(rig.started(), ElementsAre(0)) << "one at a time";
  rig.reduced(0, 0, 0);
  EXPECT_THAT(rig.started(), ElementsAre(0, 1));
  rig.reduced(0, 0, 1);
  EXPECT_THAT(rig.started(), ElementsAre(0, 1)) << "the third is not complete";
  rig.end_one();
  EXPECT_THAT(rig.started(), ElementsAre(0, 1, 2));
  EXPECT_THAT(rig.readies(), IsEmpty());
  rig.end_one();
  EXPECT_THAT(rig.readies(), ElementsAre(0u));
  rig.reduced(0, 0, 2);
  EXPECT_EQ(rig.end_all(), 0) << "no norm before all is reduced";
  rig.reduced(0, 0, 3);
  EXPECT_EQ(rig.end_all(), 1) << "the norm";
  EXPECT_EQ(rig.link->bodies(Body::REDUCED).size(), 1u);
  rig.commit(0);
  rig.end_all();
  EXPECT_EQ(rig.updates(), 1);
  EXPECT_EQ(rig.backwards(), 2 * (1 + kBuckets));
  EXPECT_THAT(rig.started(), ElementsAre(0, 1, 2, 3, 0));
}

TEST(ReplicaReductions, BucketsTileTheGradientsFromTheirEnd) {
  BucketRig rig;
  rig.end_all();
  for (int32_t bucket = 0; bucket < kBuckets; ++bucket) rig.reduced(0, 0, bucket);
  ASSERT_THAT(rig.started(), ElementsAre(0, 1, 2, 3));
  for (size_t i = 0; i + 1 < rig.buckets.size(); ++i) {
    EXPECT_EQ(rig.buckets[i + 1].values.data() + rig.buckets[i + 1].values.size(),
              rig.buckets[i].values.data());
  }
}

/// Exact sums are float64, each in the memory of two floats.
TEST(ReplicaReductions, BucketsOfExactSumsTileThemAsWell) {
  ReplicaRig rig(1, 2, false, kLayerByLayer, "allreduce", false, false, 4);
  rig.start();
  rig.end_all();
  for (int32_t bucket = 0; bucket < kBuckets; ++bucket) rig.reduced(0, 0, bucket);
  ASSERT_EQ(rig.buckets.size(), static_cast<size_t>(kBuckets));
  const std::span<float> all = rig.model->stage_gradients();
  EXPECT_EQ(rig.buckets.front().values.data() + rig.buckets.front().values.size(),
            all.data() + all.size());
  for (size_t i = 0; i + 1 < rig.buckets.size(); ++i) {
    EXPECT_EQ(rig.buckets[i + 1].values.data() + rig.buckets[i + 1].values.size(),
              rig.buckets[i].values.data());
  }
  EXPECT_EQ(rig.buckets.back().values.data(), all.data());
}

TEST(ReplicaReductions, ACommitBeforeAllBucketsAreReducedHasNoEffect) {
  for (int32_t reduced = 0; reduced < kBuckets; ++reduced) {
    BucketRig rig;
    rig.end_all();
    for (int32_t bucket = 0; bucket < reduced; ++bucket) rig.reduced(0, 0, bucket);
    rig.commit(0);
    rig.end_all();
    EXPECT_EQ(rig.updates(), 0) << "after " << reduced << " buckets";
  }
}

/// As a change of plan does it: groups are aborted, so a running collective fails; then the order.
TEST(ReplicaReductions, RetiresOnlyWhenNeitherTheDeviceNorABucketUsesTheModel) {
  for (int ended = 0; ended <= kReducedStepWork; ++ended) {
    for (bool fails_first : {false, true}) {
      BucketRig rig;
      for (int i = 0; i < ended; ++i) rig.end_one();
      const size_t running = rig.started().size();
      ASSERT_LE(running, 1u);
      const ReductionDone aborted{{0}, 0, 0, absl::UnavailableError("aborted")};
      rig.tell(RetireReplicas{});
      if (running > 0 && fails_first) rig.tell(aborted);
      if (running > 0 && !fails_first) {
        rig.end_all();
        EXPECT_THAT(rig.retired, IsEmpty()) << "a collective still runs, after " << ended;
        rig.tell(aborted);
      }
      rig.end_all();
      EXPECT_THAT(rig.retired, ElementsAre(0u)) << "after " << ended;
      EXPECT_EQ(rig.started().size(), running) << "nothing new is started";
      EXPECT_THAT(rig.faults, IsEmpty()) << "an abort on purpose is no fault";
      EXPECT_THAT(rig.link->bodies(Body::REDUCED), IsEmpty());
    }
  }
}

TEST(ReplicaReductions, ABucketThatFailsIsAFaultAndTheLastOneOfItsGroup) {
  for (int ended = 4; ended <= kReducedStepWork; ++ended) {
    BucketRig rig;
    for (int i = 0; i < ended; ++i) rig.end_one();
    rig.tell(ReductionDone{{0}, 0, 0, absl::UnavailableError("a member is gone")});
    EXPECT_THAT(rig.faults, ElementsAre(absl::UnavailableError("a member is gone")));
    rig.end_all();
    rig.commit(0);
    rig.end_all();
    EXPECT_THAT(rig.started(), ElementsAre(0));
    EXPECT_THAT(rig.link->bodies(Body::REDUCED), IsEmpty());
    EXPECT_EQ(rig.updates(), 0);
  }
}

TEST(ReplicaReductions, ATiedGradientIsOneBucketAtTheEnd) {
  ReplicaRig rig(2, 2, true, kLayerByLayer);
  ASSERT_EQ(rig.group_ids.size(), 2u) << "the stage's and that of the tied embedding";
  rig.start();
  rig.gradient(0, 0);
  rig.gradient(0, 1);
  rig.end_one();
  rig.end_one();
  rig.end_one();
  EXPECT_EQ(rig.buckets.size(), 0u);
  rig.end_one();
  EXPECT_EQ(rig.buckets.size(), 1u) << "the stage's last layer";
  rig.end_all();
  ASSERT_EQ(rig.buckets.size(), 2u) << "the tied one does not wait for the stage's";
  EXPECT_EQ(rig.buckets[1].values.size(), 8u * 4u) << "V * C";
}

TEST(ReplicaReductions, GroupsThatShareTheDeviceTakeTurnsInTheOrderOfAllMembers) {
  ReplicaRig rig(2, 2, true, kLayerByLayer, "allreduce", true);
  ASSERT_EQ(rig.group_ids.size(), 2u);
  rig.start();
  for (uint64_t step : {0, 1}) {
    rig.buckets.clear();
    rig.gradient(step, 0);
    rig.gradient(step, 1);
    rig.end_all();
    ASSERT_EQ(rig.buckets.size(), 1u) << "all are ready, the stage's first one begins";
    const float* tied = rig.model->device_tied_gradients().data();
    int32_t ended = 0;
    while (rig.buckets.back().values.data() != tied) {
      rig.reduced(rig.group_ids[0], step, ended++);
      ASSERT_EQ(rig.buckets.size(), static_cast<size_t>(ended) + 1) << "one at a time";
    }
    EXPECT_EQ(ended, 2) << "buckets of the stage";
    rig.reduced(rig.group_ids[1], step);
    EXPECT_EQ(rig.end_all(), 1) << "the norm";
    rig.commit(step);
    rig.end_all();
  }
  EXPECT_EQ(rig.updates(), 2);
}

}  // namespace
}  // namespace skein::actors
