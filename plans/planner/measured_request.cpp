#include "plans/planner/measured_request.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/collectives/group_memory.hpp"

namespace skein::plans {
namespace {

/// Micro-batches larger than the job's own by more than this factor are not tried.
constexpr int64_t kRowsFactorMax = 4;
/// Paths between workers of which nobody measured one: a gigabit network.
constexpr LinkSpeed kUnmeasured = {125e6, 100};

double whole_us(const JobSpec& job, const Profile& profile) {
  const LayerRange all{0, static_cast<int64_t>(profile.layers.size())};
  return range_times(profile, all, job.training.micro_batch_size).total_us();
}

/// Whose memory a worker uses: a machine's (of no device) or that of a device there.
std::pair<std::string, std::string> memory_of(const MeasuredWorker& worker) {
  return {worker.host, worker.is_device_memory ? worker.profile.device : std::string()};
}

/// Places of workers of which one has measured the path to the other one, ascending.
std::set<std::pair<size_t, size_t>> measured_pairs(const std::vector<MeasuredWorker>& workers) {
  std::map<WorkerId, size_t> places;
  for (size_t i = 0; i < workers.size(); ++i) places[workers[i].id] = i;
  std::set<std::pair<size_t, size_t>> pairs;
  for (size_t i = 0; i < workers.size(); ++i) {
    for (const auto& [peer, speed] : workers[i].links) {
      const auto other = places.find(peer);
      if (other == places.end() || other->second == i) continue;
      pairs.insert({std::min(i, other->second), std::max(i, other->second)});
    }
  }
  return pairs;
}

/// Mean of what both ends, or one of them, measured of their path.
LinkSpeed path_between(const MeasuredWorker& a, const MeasuredWorker& b) {
  int ends = 0;
  LinkSpeed sum{0, 0};
  auto add = [&](const MeasuredWorker& from, WorkerId to) {
    const auto found = from.links.find(to);
    if (found == from.links.end()) return;
    ++ends;
    sum.bytes_per_second += found->second.bytes_per_second;
    sum.latency_us += found->second.latency_us;
  };
  add(a, b.id);
  add(b, a.id);
  SKEIN_CHECK(ends > 0) << "nobody has measured the path";
  return {sum.bytes_per_second / ends, sum.latency_us / ends};
}

/// The first worker's times; bytes of whoever keeps most, as devices may keep numbers of unlike
/// types and any of them may get any layer.
Profile profile_of_all(const std::vector<MeasuredWorker>& workers) {
  Profile all = workers.front().profile;
  for (const MeasuredWorker& worker : workers) {
    const Profile& own = worker.profile;
    all.state_factor = std::max(all.state_factor, own.state_factor);
    all.activation_factor = std::max(all.activation_factor, own.activation_factor);
    for (size_t l = 0; l < std::min(all.layers.size(), own.layers.size()); ++l) {
      all.layers[l].stash_row_bytes =
          std::max(all.layers[l].stash_row_bytes, own.layers[l].stash_row_bytes);
    }
  }
  return all;
}

bool is_gpu(const MeasuredWorker& worker) {
  return worker.is_device_memory && absl::StartsWith(worker.profile.device, "cuda");
}

/// Workers that share a GPU are never in one group of devices, but each may be in one with others.
int64_t gpu_count(const std::vector<MeasuredWorker>& workers) {
  std::set<std::pair<std::string, std::string>> gpus;
  for (const MeasuredWorker& worker : workers) {
    if (is_gpu(worker)) gpus.insert(memory_of(worker));
  }
  return std::ssize(gpus);
}

/// Gives the device the worker's share of the memory, and of that what models may take: groups of
/// GPUs have theirs beside what a device gives out, and so beside its limit.
void set_memory(const MeasuredWorker& worker, int64_t users, int64_t group_bytes,
                ClusterDevice& device) {
  int64_t bytes = worker.memory_bytes / users;
  if (bytes <= 0) return;
  const int64_t limit = worker.memory_bytes_max > 0 ? worker.memory_bytes_max : bytes;
  if (is_gpu(worker) && bytes - group_bytes < limit) device.group_bytes = group_bytes;
  bytes = std::min(bytes - device.group_bytes, limit) - worker.rounding_bytes;
  device.memory_bytes = std::max<int64_t>(bytes, 1);
}

}  // namespace

std::vector<int64_t> rows_to_measure(const JobSpec& job) {
  const int64_t rows = job.training.micro_batch_size;
  const int64_t most = std::min(kRowsFactorMax * rows, job.training.global_batch_size);
  std::set<int64_t> counts = {1, rows, most};
  if (rows > 3) counts.insert(rows / 2);
  return {counts.begin(), counts.end()};
}

ClusterSpec measured_cluster(const JobSpec& job, const std::vector<MeasuredWorker>& workers) {
  SKEIN_CHECK(!workers.empty()) << "nobody has measured";
  ClusterSpec cluster;
  std::map<std::string, int32_t> host_of;
  std::map<std::pair<std::string, std::string>, int64_t> users;
  for (const MeasuredWorker& worker : workers) {
    ++users[memory_of(worker)];
    host_of.emplace(worker.host, 0);
  }
  for (auto& [name, number] : host_of) {
    number = static_cast<int32_t>(cluster.hosts.size());
    cluster.hosts.push_back({name, kUnmeasured, kUnmeasured});
  }
  const double reference_us = whole_us(job, workers.front().profile);
  const int64_t group_bytes = device_group_bytes(job, gpu_count(workers));
  for (const MeasuredWorker& worker : workers) {
    ClusterDevice& device = cluster.devices.emplace_back();
    device.name = absl::StrCat("w", worker.id.value, " ", worker.profile.device);
    device.host = host_of.at(worker.host);
    set_memory(worker, users.at(memory_of(worker)), group_bytes, device);
    const double own_us = whole_us(job, worker.profile);
    device.speed = own_us > 0 && reference_us > 0 ? reference_us / own_us : 1.0;
  }
  // The fastest path of a host is what its port or its card can do; slower pairs are links.
  std::map<std::pair<int32_t, int32_t>, LinkSpeed> between;
  std::set<int32_t> measured_inside;
  std::set<int32_t> measured_network;
  for (const auto& [a, b] : measured_pairs(workers)) {
    const LinkSpeed speed = path_between(workers[a], workers[b]);
    const int32_t host_a = cluster.devices[a].host;
    const int32_t host_b = cluster.devices[b].host;
    auto raise = [&](LinkSpeed& to, bool is_first) {
      if (is_first || speed.bytes_per_second > to.bytes_per_second) to = speed;
    };
    if (host_a == host_b) {
      raise(cluster.hosts[static_cast<size_t>(host_a)].inside,
            measured_inside.insert(host_a).second);
      continue;
    }
    for (int32_t host : {host_a, host_b}) {
      raise(cluster.hosts[static_cast<size_t>(host)].network, measured_network.insert(host).second);
    }
    between[{std::min(host_a, host_b), std::max(host_a, host_b)}] = speed;
  }
  for (const auto& [hosts, speed] : between) {
    cluster.links.push_back({hosts.first, hosts.second, speed});
  }
  return cluster;
}

PlanRequest measured_request(const JobSpec& job, const std::vector<MeasuredWorker>& workers) {
  PlanRequest request;
  request.schedules.clear();
  request.profile = profile_of_all(workers);
  request.cluster = measured_cluster(job, workers);
  const int64_t batch = job.training.global_batch_size;
  request.global_batch_rows = batch;
  const int64_t rows = job.training.micro_batch_size;
  // First the job's own: what the planners that do not choose take.
  for (int64_t count = rows; count <= std::min(batch, kRowsFactorMax * rows); ++count) {
    if (batch % count == 0) request.microbatch_rows.push_back(count);
  }
  for (ScheduleKind kind : schedule_kinds()) {
    // A custom one is written by hand.
    if (kind != ScheduleKind::kCustom) request.schedules.push_back(kind);
  }
  request.may_recompute = true;
  request.asks_others = job.parallelism.plans_of_others;
  request.simulation.keeps_records = false;
  request.simulation.commit_us = kCommitUs;
  request.simulation.action_overhead_us = kActionOverheadUs;
  return request;
}

std::vector<WorkerId> ids_of(const std::vector<MeasuredWorker>& workers) {
  std::vector<WorkerId> ids;
  for (const MeasuredWorker& each : workers) ids.push_back(each.id);
  return ids;
}

}  // namespace skein::plans
