#include "plans/coordinator/measurements.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/profile/estimate.hpp"
#include "plans/stragglers/speed_watch.hpp"

namespace skein::plans {
namespace {

/// FLOPs, and bytes of memory: only ratios of layers count.
constexpr double kGuessedPerSecond = 1e9;

}  // namespace

CoordinatorDecisions Measurements::tell_peers(const std::map<WorkerId, Member>& members) {
  told_.emplace(members);
  CoordinatorDecisions decisions;
  for (const auto& [id, member] : members) {
    decisions.push_back(RequestProfile{id, {}, told_->peers_of(id)});
  }
  return decisions;
}

CoordinatorDecisions Measurements::request(const std::map<WorkerId, Member>& members) {
  std::set<std::string> busy;
  for (WorkerId each : asked_) busy.insert(members.at(each).request.host_name);
  CoordinatorDecisions decisions;
  for (const auto& [id, member] : members) {
    if (measured_.contains(id) || asked_.contains(id) || member.has_failed) continue;
    if (!busy.insert(member.request.host_name).second) continue;
    asked_.insert(id);
    decisions.push_back(RequestProfile{id, rows_to_measure(job_), {}});
  }
  if (decisions.empty()) return decisions;
  const ProbeRing ring(members);
  for (CoordinatorDecision& decision : decisions) {
    auto& request = std::get<RequestProfile>(decision);
    request.peers = ring.peers_of(request.worker);
  }
  // Of fewer members than there were, others may be neighbours.
  if (!told_ || !told_->is_sample() || told_->has_places_of(ring)) return decisions;
  CoordinatorDecisions told = tell_peers(members);
  told.insert(told.end(), decisions.begin(), decisions.end());
  return told;
}

void Measurements::take(const Member& member, MeasuredWorker measured) {
  SKEIN_CHECK(asked_.erase(member.id) == 1) << member.id << " was not asked to measure";
  measured.id = member.id;
  measured.host = member.request.host_name;
  measured_[member.id] = std::move(measured);
}

bool Measurements::forget(WorkerId worker) {
  measured_.erase(worker);
  return asked_.erase(worker) == 1;
}

void Measurements::slow_down(WorkerId worker, double slowdown) {
  const auto found = measured_.find(worker);
  if (found != measured_.end()) plans::slow_down(found->second, slowdown);
}

bool Measurements::has_all(const std::map<WorkerId, Member>& members) const {
  return std::all_of(members.begin(), members.end(), [this](const auto& each) {
    return each.second.has_failed || measured_.contains(each.first);
  });
}

std::vector<MeasuredWorker> Measurements::all() const {
  std::vector<MeasuredWorker> measured;
  for (const auto& [id, each] : measured_) measured.push_back(each);
  return measured;
}

std::vector<MeasuredWorker> Measurements::of(const std::vector<WorkerId>& workers) const {
  std::vector<MeasuredWorker> measured;
  for (WorkerId id : workers) {
    const auto found = measured_.find(id);
    if (found != measured_.end()) measured.push_back(found->second);
  }
  return measured;
}

std::vector<MeasuredWorker> Measurements::of_or_guessed(
    const std::vector<WorkerId>& workers) const {
  std::vector<MeasuredWorker> measured;
  for (const WorkerId worker : workers) {
    if (const auto found = measured_.find(worker); found != measured_.end()) {
      measured.push_back(found->second);
      continue;
    }
    MeasuredWorker& guess = measured.emplace_back();
    guess.id = worker;
    guess.profile = measured_.empty()
                        ? estimate_profile(job_.model, job_.training.seq_len, rows_to_measure(job_),
                                           job_.optimizer, kGuessedPerSecond, kGuessedPerSecond)
                        : measured_.begin()->second.profile;
  }
  return measured;
}

RunEvent Measurements::describe(WorkerId worker) const {
  const std::vector<MeasuredWorker> pair = {measured_.begin()->second, measured_.at(worker)};
  const ClusterDevice device = measured_cluster(job_, pair).devices.back();
  return {"worker.measured",
          absl::StrCat("measured ", device.name, ": speed ", device.speed),
          {{"worker", absl::StrCat(worker.value)}, {"speed", absl::StrCat(device.speed)}}};
}

void Measurements::check_invariants(const std::map<WorkerId, Member>& members) const {
  for (const auto& [id, each] : measured_) {
    SKEIN_CHECK(members.contains(id) && each.id == id) << id << " is no member";
    SKEIN_CHECK(!asked_.contains(id)) << id << " has measured, and is asked to";
  }
  for (WorkerId each : asked_) SKEIN_CHECK(members.contains(each)) << each << " is no member";
}

}  // namespace skein::plans
