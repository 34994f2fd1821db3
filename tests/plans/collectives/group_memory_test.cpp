#include "plans/collectives/group_memory.hpp"

#include <gtest/gtest.h>

namespace skein::plans {
namespace {

JobSpec job_of(const char* backend) {
  JobSpec job;
  job.sync.policy = "allreduce";
  job.model.tied_head = false;
  job.comm.backend = backend;
  return job;
}

TEST(GroupMemory, GrowsWithPeersUpToThoseOfRingAndTree) {
  const JobSpec job = job_of("auto");
  const int64_t of_two = device_group_bytes(job, 2);
  EXPECT_GE(of_two, int64_t{3} * kGroupChannelsMax * (4 << 20)) << "a sum and two links";
  EXPECT_EQ(device_group_bytes(job, 3), 2 * of_two);
  EXPECT_GT(device_group_bytes(job, 4), device_group_bytes(job, 3));
  EXPECT_EQ(device_group_bytes(job, 1000), device_group_bytes(job, 4));
}

TEST(GroupMemory, ATiedHeadAndVirtualStagesHaveGroupsOfTheirOwn) {
  JobSpec job = job_of("nccl");
  const int64_t untied = device_group_bytes(job, 4);
  job.model.tied_head = true;
  EXPECT_GT(device_group_bytes(job, 4), untied);
  job.model.tied_head = false;
  job.parallelism.virtual_stages = 2;
  EXPECT_EQ(device_group_bytes(job, 4), 2 * untied);
}

TEST(GroupMemory, APipelineOfOneRankHasNoLinks) {
  JobSpec job = job_of("auto");
  const int64_t of_many = device_group_bytes(job, 2);
  job.parallelism.pipeline_parallel_degree = 1;
  EXPECT_EQ(device_group_bytes(job, 2), of_many / 3) << "its sum, and not two links";
  job.model.tied_head = true;
  EXPECT_EQ(device_group_bytes(job, 2), of_many / 3) << "both copies are in the one stage";
  job.model.tied_head = false;
  job.parallelism.plan = "plan.txt";
  EXPECT_EQ(device_group_bytes(job, 2), of_many) << "a file's plan has ranks of its own";
}

TEST(GroupMemory, WhoFormsNoGroupsNeedsNone) {
  EXPECT_EQ(device_group_bytes(job_of("auto"), 1), 0);
  EXPECT_EQ(device_group_bytes(job_of("gloo"), 8), 0);
  JobSpec tokens = job_of("auto");
  tokens.sync.policy = "tokens";
  EXPECT_EQ(device_group_bytes(tokens, 8), 0) << "hosts add up";
  JobSpec local = job_of("auto");
  local.sync.policy = "overlapped";
  EXPECT_EQ(device_group_bytes(local, 8), 0) << "hosts pass on";
}

}  // namespace
}  // namespace skein::plans
