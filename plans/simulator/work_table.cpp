#include "plans/simulator/work_table.hpp"

#include <algorithm>
#include <map>

namespace skein::plans {
namespace {

int32_t device_of(WorkerId worker) { return static_cast<int32_t>(worker.value) - 1; }

std::array<double, 4> work_us(const LayerTimes& times, bool recompute, double speed) {
  const double again_us = recompute ? times.forward_us : 0;
  std::array<double, 4> work{};
  work[static_cast<size_t>(ActionType::kForward)] = times.forward_us / speed;
  work[static_cast<size_t>(ActionType::kBackward)] = (again_us + times.backward_us()) / speed;
  work[static_cast<size_t>(ActionType::kBackwardInput)] =
      (again_us + times.backward_input_us) / speed;
  work[static_cast<size_t>(ActionType::kBackwardWeight)] = times.backward_weight_us / speed;
  return work;
}

std::vector<SimulatedRoute> simulated_routes(const Plan& plan, const Profile& profile,
                                             const ClusterSpec& cluster, const ReplicaPlan& replica,
                                             int step) {
  std::vector<SimulatedRoute> routes;
  const LayerRange& layers = plan.stages[static_cast<size_t>(stage_of(plan, replica.id))].layers;
  const int64_t cut = step > 0 ? layers.end : layers.begin;
  for (const Route& route : routes_from(plan, replica.id, step)) {
    const WorkerId to = replica_of(plan, route.to).worker;
    SimulatedRoute& simulated = routes.emplace_back();
    simulated.to = static_cast<int32_t>(route.to.value);
    simulated.bytes = route.rows.count * cut_row_bytes(profile, cut);
    simulated.is_local = to == replica.worker;
    simulated.path = path_between(cluster, device_of(replica.worker), device_of(to));
  }
  return routes;
}

/// Workers ascending by id, with their ranks but without their sums.
std::vector<SimulatedRole> roles_of(const Plan& plan) {
  std::map<WorkerId, SimulatedRole> roles;
  for (const StagePlan& stage : plan.stages) {
    for (size_t r = 0; r < stage.replicas.size(); ++r) {
      const ReplicaPlan& replica = stage.replicas[r];
      roles[replica.worker] = {replica.worker, device_of(replica.worker), replica.rank,
                               static_cast<int32_t>(r)};
    }
  }
  std::vector<SimulatedRole> sorted;
  for (const auto& [id, role] : roles) sorted.push_back(role);
  return sorted;
}

int32_t position_of(const std::vector<SimulatedRole>& workers, WorkerId id) {
  const auto found =
      std::lower_bound(workers.begin(), workers.end(), id,
                       [](const SimulatedRole& role, WorkerId wanted) { return role.id < wanted; });
  return static_cast<int32_t>(found - workers.begin());
}

}  // namespace

WorkTable make_work_table(const Plan& plan, const Profile& profile, const ClusterSpec& cluster) {
  WorkTable table;
  table.workers = roles_of(plan);
  std::vector<int64_t> extra_bytes(table.workers.size(), 0);
  for (const StagePlan& stage : plan.stages) {
    table.first_replica.push_back(static_cast<int32_t>(table.replicas.size()));
    for (const ReplicaPlan& plan_replica : stage.replicas) {
      SimulatedReplica& replica = table.replicas.emplace_back();
      replica.worker = position_of(table.workers, plan_replica.worker);
      const auto w = static_cast<size_t>(replica.worker);
      SimulatedRole& role = table.workers[w];
      const double speed = cluster.devices[static_cast<size_t>(role.device)].speed;
      const int64_t rows = plan_replica.rows.count;
      replica.work_us = work_us(range_times(profile, stage.layers, rows), plan.recompute, speed);
      replica.routes = {simulated_routes(plan, profile, cluster, plan_replica, +1),
                        simulated_routes(plan, profile, cluster, plan_replica, -1)};
      for (auto& direction : replica.routes) {
        for (SimulatedRoute& route : direction) route.stream = table.stream_count++;
      }
      // Both directions use the same routes, so what comes in is what goes out the other way.
      replica.input_count = {static_cast<int32_t>(replica.routes[1].size()),
                             static_cast<int32_t>(replica.routes[0].size())};
      const StageMemory memory = stage_memory(profile, stage.layers, rows, plan.recompute);
      replica.stash_bytes = memory.stash_bytes;
      role.resident_bytes += memory.state_bytes;
      extra_bytes[w] = std::max(extra_bytes[w], memory.extra_bytes);
      role.update_us += profile.update_us_per_byte *
                        static_cast<double>(parameter_bytes(profile, stage.layers)) / speed;
    }
  }
  for (size_t w = 0; w < table.workers.size(); ++w) {
    table.workers[w].resident_bytes += extra_bytes[w];
  }
  return table;
}

}  // namespace skein::plans
