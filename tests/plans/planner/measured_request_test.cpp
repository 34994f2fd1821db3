#include "plans/planner/measured_request.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "plans/collectives/group_memory.hpp"

namespace skein::plans {
namespace {

constexpr int64_t kGigabyte = 1'000'000'000;

MeasuredWorker worker(uint32_t id, const std::string& host, int64_t memory_bytes) {
  MeasuredWorker made;
  made.id = WorkerId{id};
  made.host = host;
  made.profile.device = "cpu x1";
  made.profile.rows = {1};
  made.profile.layers.resize(1);
  made.profile.layers[0].at = {{10, 10, 10}};
  made.memory_bytes = memory_bytes;
  return made;
}

MeasuredWorker gpu_worker(uint32_t id, const std::string& device, int64_t memory_bytes) {
  MeasuredWorker made = worker(id, "a", memory_bytes);
  made.profile.device = device;
  made.is_device_memory = true;
  return made;
}

std::vector<int64_t> memory_of(const std::vector<MeasuredWorker>& workers,
                               const char* backend = "gloo") {
  JobSpec job;
  job.comm.backend = backend;
  std::vector<int64_t> bytes;
  for (const ClusterDevice& device : measured_cluster(job, workers).devices) {
    bytes.push_back(device.memory_bytes);
  }
  return bytes;
}

TEST(MeasuredCluster, SharesTheMemoryOfAMachineAmongThoseWhoUseIt) {
  EXPECT_EQ(memory_of({worker(1, "a", 8), worker(2, "b", 6), worker(3, "a", 8)}),
            (std::vector<int64_t>{4, 6, 4}));
}

TEST(MeasuredCluster, GivesAGpuItsOwnMemory) {
  // Two on one GPU, one on another, and one that uses the machine's alone.
  EXPECT_EQ(memory_of({gpu_worker(1, "cuda:0", 10), gpu_worker(2, "cuda:0", 10),
                       gpu_worker(3, "cuda:1", 12), worker(4, "a", 100)}),
            (std::vector<int64_t>{5, 5, 12, 100}));
}

/// The library takes them beside what the device gives out, so not of a worker's limit.
TEST(MeasuredCluster, LeavesRoomForGroupsOfGpus) {
  const int64_t groups = device_group_bytes(JobSpec{}, 2);
  ASSERT_GT(groups, 0);
  MeasuredWorker limited = gpu_worker(2, "cuda:1 some", 80 * kGigabyte);
  limited.memory_bytes_max = 70 * kGigabyte;
  const std::vector<MeasuredWorker> workers = {gpu_worker(1, "cuda:0 some", 80 * kGigabyte),
                                               limited, worker(3, "b", kGigabyte)};
  EXPECT_EQ(memory_of(workers, "auto"),
            (std::vector<int64_t>{80 * kGigabyte - groups, 70 * kGigabyte, kGigabyte}));
  EXPECT_EQ(memory_of({workers[0]}, "auto"), (std::vector<int64_t>{80 * kGigabyte})) << "alone";
  EXPECT_EQ(memory_of({workers[0], workers[2]}, "auto").front(), 80 * kGigabyte) << "no other GPU";
  const MeasuredWorker beside = gpu_worker(4, "cuda:0 some", 80 * kGigabyte);
  EXPECT_EQ(memory_of({workers[0], beside}, "auto"),
            (std::vector<int64_t>{40 * kGigabyte, 40 * kGigabyte}))
      << "two on one GPU form no group";
  EXPECT_EQ(memory_of({workers[0], beside, limited}, "auto").front(), 40 * kGigabyte - groups)
      << "either may form one with the other GPU";
  EXPECT_EQ(memory_of({gpu_worker(1, "cuda:0 small", 10), limited}, "auto").front(), 1)
      << "0 would be no limit";
}

TEST(MeasuredCluster, SaysWhatGroupsOfGpusTakeWhereThatIsMissing) {
  MeasuredWorker limited = gpu_worker(2, "cuda:1 some", 80 * kGigabyte);
  limited.memory_bytes_max = kGigabyte;
  const std::vector<MeasuredWorker> workers = {gpu_worker(1, "cuda:0 small", 10), limited,
                                               worker(3, "b", 10)};
  JobSpec job;
  const ClusterSpec cluster = measured_cluster(job, workers);
  const int64_t groups = device_group_bytes(job, 2);
  EXPECT_EQ(cluster.devices[0].group_bytes, groups);
  EXPECT_EQ(cluster.devices[1].group_bytes, 0) << "its limit leaves them more than enough";
  EXPECT_EQ(cluster.devices[2].group_bytes, 0) << "the processor forms none";
  job.comm.backend = "gloo";
  EXPECT_EQ(measured_cluster(job, workers).devices[0].group_bytes, 0);
}

TEST(MeasuredCluster, KeepsToTheLimitOfAWorker) {
  MeasuredWorker limited = gpu_worker(1, "cuda:0", 10 * kGigabyte);
  limited.memory_bytes_max = 3 * kGigabyte;
  EXPECT_EQ(memory_of({limited}), (std::vector<int64_t>{3 * kGigabyte}));
  limited.memory_bytes_max = 30 * kGigabyte;
  EXPECT_EQ(memory_of({limited}), (std::vector<int64_t>{10 * kGigabyte}));
}

TEST(MeasuredCluster, LeavesRoomForWhatEachWorkerOfAGpuRoundsUp) {
  std::vector<MeasuredWorker> workers = {gpu_worker(1, "cuda:0", 100), gpu_worker(2, "cuda:0", 100),
                                         gpu_worker(3, "cuda:1", 100), gpu_worker(4, "cuda:2", 0)};
  for (MeasuredWorker& each : workers) each.rounding_bytes = 10;
  workers[2].memory_bytes_max = 30;
  EXPECT_EQ(memory_of(workers), (std::vector<int64_t>{40, 40, 20, 0}));
  workers[2].rounding_bytes = 30;
  EXPECT_EQ(memory_of({workers[2]}), (std::vector<int64_t>{1})) << "0 would be no limit";
}

TEST(MeasuredCluster, TakesTheFirstWorkerForTheMeasureOfSpeed) {
  MeasuredWorker fast = gpu_worker(2, "cuda:0", 1);
  fast.profile.layers[0].at = {{2, 2, 2}};
  const ClusterSpec cluster = measured_cluster(JobSpec{}, {worker(1, "a", 1), fast});
  EXPECT_EQ(cluster.devices[0].speed, 1);
  EXPECT_EQ(cluster.devices[1].speed, 5);
}

TEST(MeasuredRequest, AsksTheOtherPlannersAsTheJobSays) {
  const std::vector<MeasuredWorker> workers = {worker(1, "a", 8), worker(2, "b", 8)};
  JobSpec job;
  EXPECT_TRUE(measured_request(job, workers).asks_others);
  job.parallelism.plans_of_others = false;
  EXPECT_FALSE(measured_request(job, workers).asks_others);
}

TEST(MeasuredRequest, CountsTheBytesOfTheWorkerThatKeepsMost) {
  for (const bool floats_first : {false, true}) {
    std::vector<MeasuredWorker> workers = {worker(1, "a", 8), worker(2, "b", 8)};
    MeasuredWorker& halves = workers[floats_first ? 1 : 0];
    MeasuredWorker& floats = workers[floats_first ? 0 : 1];
    halves.profile.state_factor = 4.5;
    halves.profile.activation_factor = 0.5;
    halves.profile.layers[0].stash_row_bytes = 60;
    floats.profile.layers[0].stash_row_bytes = 100;
    const Profile profile = measured_request(JobSpec{}, workers).profile;
    EXPECT_EQ(profile.state_factor, 4.5);
    EXPECT_EQ(profile.activation_factor, 1);
    EXPECT_EQ(profile.layers[0].stash_row_bytes, 100);
    EXPECT_EQ(profile.layers[0].at, workers[0].profile.layers[0].at);
  }
}

}  // namespace
}  // namespace skein::plans
