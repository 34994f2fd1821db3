#include "plans/elastic/snapshot_peers.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "plans/plan/layout_plan.hpp"
#include "small_plans.hpp"

namespace skein::plans {
namespace {

/// Worker n is on host n mod `host_count`.
std::map<WorkerId, std::string> hosts_of(uint32_t workers, uint32_t host_count) {
  std::map<WorkerId, std::string> hosts;
  for (const WorkerId worker : first_ids(workers)) {
    hosts[worker] = absl::StrCat("host", worker.value % host_count);
  }
  return hosts;
}

TEST(SnapshotPeers, AreAnotherWorkerAndOnAnotherHostIfThereIsOne) {
  for (int64_t blocks = 2; blocks <= 6; ++blocks) {
    for (const JobSpec& job : small_jobs(blocks)) {
      for (uint32_t workers = 1; workers <= 6; ++workers) {
        const auto plan = make_layout_plan(job, first_ids(workers), 1);
        if (!plan.ok()) continue;
        for (uint32_t host_count = 1; host_count <= 3; ++host_count) {
          const auto hosts = hosts_of(workers, host_count);
          const std::vector<WorkerId> snapshot_peers =
              choose_snapshot_peers(*plan, job.model, hosts);
          ASSERT_EQ(snapshot_peers.size(), plan->stages.size());
          EXPECT_EQ(snapshot_peers, choose_snapshot_peers(*plan, job.model, hosts));
          for (size_t s = 0; s < snapshot_peers.size(); ++s) {
            const WorkerId owner = plan->stages[s].replicas.front().worker;
            EXPECT_NE(snapshot_peers[s], owner);
            EXPECT_EQ(snapshot_peers[s].value == 0, workers == 1);
            const bool has_choice = std::any_of(hosts.begin(), hosts.end(), [&](const auto& each) {
              return each.second != hosts.at(owner);
            });
            if (has_choice) {
              EXPECT_NE(hosts.at(snapshot_peers[s]), hosts.at(owner));
            }
          }
        }
      }
    }
  }
}

TEST(SnapshotPeers, KeepOneStageEachWhereStagesAndWorkersAreAsMany) {
  JobSpec job = small_job(6, false);
  for (uint32_t workers = 2; workers <= 6; ++workers) {
    const auto plan = make_layout_plan(job, first_ids(workers), 1);
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::vector<WorkerId> snapshot_peers =
        choose_snapshot_peers(*plan, job.model, hosts_of(workers, workers));
    std::sort(snapshot_peers.begin(), snapshot_peers.end());
    const auto twice = std::adjacent_find(snapshot_peers.begin(), snapshot_peers.end());
    // The last stage may find only its own worker without a snapshot.
    const bool is_spread =
        twice == snapshot_peers.end() ||
        std::adjacent_find(twice + 1, snapshot_peers.end()) == snapshot_peers.end();
    EXPECT_TRUE(is_spread) << workers;
  }
}

TEST(SnapshotPeers, AreNotLostWithTheStageThatTheyKeep) {
  JobSpec job = small_job(4, false);
  job.parallelism.data_parallel_replicate_degree = 2;
  const auto plan = make_layout_plan(job, first_ids(4), 1);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(choose_snapshot_peers(*plan, job.model, hosts_of(4, 1)), ids({3, 1}));
}

TEST(SnapshotPeers, UnderLocalUpdatesAWorkerKeepsItsOwnIfNobodyElseCan) {
  JobSpec job = small_job(4, false);
  auto plan = make_layout_plan(job, first_ids(2), 1);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const WorkerPairs apart = {pair_of({1}, {2})};
  EXPECT_EQ(choose_snapshot_peers(*plan, job.model, hosts_of(2, 1), apart), ids({0, 0}));
  plan->mode = kLocalMode;
  EXPECT_EQ(choose_snapshot_peers(*plan, job.model, hosts_of(2, 1), apart), ids({1, 2}));
  EXPECT_EQ(choose_snapshot_peers(*plan, job.model, hosts_of(2, 1)), ids({2, 1}));
}

TEST(SnapshotPeers, MayHaveNoPartInThePlan) {
  JobSpec job = small_job(4, false);
  job.parallelism.pipeline_parallel_degree = 1;
  const auto plan = make_layout_plan(job, first_ids(1), 1);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(choose_snapshot_peers(*plan, job.model, hosts_of(3, 2)), ids({2}));
}

}  // namespace
}  // namespace skein::plans
