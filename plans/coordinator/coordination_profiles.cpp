// What workers measure before the planner chooses: devices, and the links between them.

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/coordinator/coordination.hpp"

namespace skein::plans {

bool Coordination::chooses_plan() const {
  return !options_.plan && options_.job.parallelism.pipeline_parallel_degree == kAutoDegree;
}

/// Everybody answers the probes of everybody who is there now.
CoordinatorDecisions Coordination::tell_peers() const {
  CoordinatorDecisions decisions;
  for (const auto& [id, member] : members_) decisions.push_back(RequestProfile{id, {}});
  return decisions;
}

CoordinatorDecisions Coordination::start_profiling(uint64_t now_us) {
  phase_ = Phase::kProfiling;
  CoordinatorDecisions decisions = {
      RunEvent{"profile.started",
               absl::StrCat("measuring ", members_.size(), " devices and the links between them"),
               {}}};
  append(decisions, tell_peers());
  append(decisions, request_profiles());
  append(decisions, try_finish_profiling(now_us));
  return decisions;
}

/// Asks one worker of each host that has nobody at work: they would disturb each other.
CoordinatorDecisions Coordination::request_profiles() {
  std::set<std::string> busy;
  for (const auto& [id, member] : members_) {
    if (member.profiling) busy.insert(member.request.host_name);
  }
  CoordinatorDecisions decisions;
  for (auto& [id, member] : members_) {
    if (member.measured || member.profiling || !busy.insert(member.request.host_name).second) {
      continue;
    }
    member.profiling = true;
    decisions.push_back(RequestProfile{id, rows_to_measure(options_.job)});
  }
  return decisions;
}

CoordinatorDecisions Coordination::on_profiled(WorkerId worker, MeasuredWorker measured,
                                               uint64_t now_us) {
  auto member = members_.find(worker);
  if (phase_ == Phase::kEnded || member == members_.end() || !member->second.profiling) {
    return drop();
  }
  measured.id = worker;
  measured.host = member->second.request.host_name;
  member->second.profiling = false;
  member->second.measured = std::move(measured);
  last_progress_us_ = now_us;
  CoordinatorDecisions decisions = request_profiles();
  if (phase_ != Phase::kProfiling) {
    decisions.push_back(describe_measured(worker));
    consider_change(now_us);
    return decisions;
  }
  append(decisions, try_finish_profiling(now_us));
  return decisions;
}

CoordinatorDecisions Coordination::try_finish_profiling(uint64_t now_us) {
  const bool all = std::all_of(members_.begin(), members_.end(),
                               [](const auto& each) { return each.second.measured.has_value(); });
  const std::vector<MeasuredWorker> workers =
      measured_workers(eligible_workers(now_us, Leavers::kWithout));
  if (!all || workers.empty()) return {};
  CoordinatorDecisions decisions = {
      ReportProfiles{workers.front().profile, measured_cluster(options_.job, workers)}};
  append(decisions, options_.only_profiles ? end(absl::OkStatus(), false) : begin_halt("", now_us));
  return decisions;
}

/// Of a worker that joined late: its speed, where that of the first one that has measured is 1.
RunEvent Coordination::describe_measured(WorkerId worker) const {
  const std::vector<MeasuredWorker> pair = {measured_workers().front(),
                                            *members_.at(worker).measured};
  const ClusterDevice device = measured_cluster(options_.job, pair).devices.back();
  return {"worker.measured",
          absl::StrCat("measured ", device.name, ": speed ", device.speed),
          {{"worker", absl::StrCat(worker.value)}, {"speed", absl::StrCat(device.speed)}}};
}

/// Of all members.
std::vector<MeasuredWorker> Coordination::measured_workers() const {
  std::vector<WorkerId> all;
  for (const auto& [id, member] : members_) all.push_back(id);
  return measured_workers(all);
}

std::vector<MeasuredWorker> Coordination::measured_workers(
    const std::vector<WorkerId>& workers) const {
  std::vector<MeasuredWorker> measured;
  for (WorkerId id : workers) {
    const auto member = members_.find(id);
    if (member != members_.end() && member->second.measured) {
      measured.push_back(*member->second.measured);
    }
  }
  return measured;
}

}  // namespace skein::plans
