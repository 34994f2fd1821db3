#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plans/plan/plan.hpp"
#include "plans/profile/cluster.hpp"
#include "plans/profile/profile.hpp"
#include "plans/simulator/cluster_paths.hpp"

namespace skein::plans {

/// Rows of an output on their way to one replica of a neighbouring stage.
struct SimulatedRoute {
  int32_t to = 0;  // Replica.
  int64_t bytes = 0;
  bool is_local = false;  // Both replicas are on one worker.
  int32_t stream = 0;     // Number of its connection: each route has its own, in order.
  DevicePath path;
};

struct SimulatedReplica {
  int32_t worker = 0;                                 // Position in `WorkTable::workers`.
  std::array<double, 4> work_us{};                    // By `ActionType`, on its device.
  std::array<std::vector<SimulatedRoute>, 2> routes;  // Routes of the output of F, then of B and I.
  std::array<int32_t, 2> input_count{};               // Routes into it, of F; of B and I.
  int64_t stash_bytes = 0;
};

struct SimulatedRole {
  WorkerId id;
  int32_t device = 0;
  int32_t rank = 0;
  int32_t position = 0;  // Among the replicas of each of its stages.
  double update_us = 0;
  int64_t resident_bytes = 0;  // State, and what recomputation needs.
};

/// All that does not change while a plan is simulated.
struct WorkTable {
  std::vector<SimulatedReplica> replicas;  // By id.
  std::vector<SimulatedRole> workers;      // Ascending by id.
  std::vector<int32_t> first_replica;      // [stages]
  int32_t stream_count = 0;
  int32_t replica_of(int32_t stage, int32_t position) const {
    return first_replica[static_cast<size_t>(stage)] + position;
  }
};

/// The plan's workers are devices of the cluster. Cost: O(replicas * (stages + routes)).
WorkTable make_work_table(const Plan& plan, const Profile& profile, const ClusterSpec& cluster);

}  // namespace skein::plans
