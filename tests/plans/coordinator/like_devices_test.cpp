#include "plans/coordinator/like_devices.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plans/small_cluster.hpp"

namespace skein::plans {
namespace {

using ::testing::HasSubstr;

TEST(LikeDevices, WhichOneOfAMachinesGpusItIsAndAnEmulatedSpeedDoNotCount) {
  EXPECT_EQ(kind_of_device("cpu x4"), "cpu x4");
  EXPECT_EQ(kind_of_device("cpu x4 at speed 0.25"), "cpu x4");
  EXPECT_EQ(kind_of_device("cuda:0 NVIDIA H200 (0000:1b:00.0)"), "cuda NVIDIA H200");
  EXPECT_EQ(kind_of_device("cuda:13 NVIDIA H200 (0000:2c:00.0) at speed 0.5"), "cuda NVIDIA H200");
  EXPECT_EQ(kind_of_device("cuda:1"), "cuda");
  EXPECT_EQ(kind_of_device(""), "");
}

TEST(LikeDevices, TellsOfWhoComputesOnAnotherDeviceThanTheFirst) {
  LikeDevices devices;
  EXPECT_FALSE(devices.on_device({7}, ""));
  EXPECT_FALSE(devices.on_device({2}, "cpu x1 at speed 0.1"));
  EXPECT_FALSE(devices.on_device({3}, "cpu x1"));
  for (const char* other : {"cpu x2", "cuda:0 NVIDIA H200 (0000:1b:00.0)"}) {
    const auto told = devices.on_device({4}, other);
    ASSERT_TRUE(told) << other;
    EXPECT_EQ(told->name, "worker.unlike");
    EXPECT_EQ(told->fields.at("worker"), "4");
    EXPECT_THAT(told->text, HasSubstr("and w2 on cpu x1: tokens.reproducible = true"));
  }
}

TEST(LikeDevices, TheCoordinatorLooksOnlyWhereBitsArePromisedAndOnceForEachDevice) {
  for (const bool is_exact : {false, true}) {
    JobSpec job = small_job();
    job.tokens.reproducible = is_exact;
    Cluster cluster(job);
    cluster.start();
    const auto beat = [&](uint32_t worker, const std::string& device) {
      WorkerActivity activity;
      activity.device = device;
      const CoordinatorDecisions decisions =
          cluster.coordination.on_heartbeat(WorkerId{worker}, activity, 0).decisions();
      int told = 0;
      for (const CoordinatorDecision& each : decisions) {
        const auto* event = std::get_if<RunEvent>(&each);
        told += event != nullptr && event->name == "worker.unlike" ? 1 : 0;
      }
      return told;
    };
    EXPECT_EQ(beat(1, "cpu x1"), 0);
    EXPECT_EQ(beat(2, ""), 0) << "it has none yet";
    EXPECT_EQ(beat(2, "cpu x4"), is_exact ? 1 : 0);
    EXPECT_EQ(beat(2, "cpu x4"), 0) << "once";
    EXPECT_EQ(beat(2, ""), 0) << "an older message says nothing";
    EXPECT_EQ(beat(2, "cpu x1"), 0);
    EXPECT_EQ(beat(9, "cpu x4"), 0) << "it is none of the workers";
  }
}

}  // namespace
}  // namespace skein::plans
