#include "plans/coordinator/stage_sync.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {

StageSync::StageSync(const StagePlan& stage) {
  for (const ReplicaPlan& replica : stage.replicas) {
    replicas_[replica.id].worker = replica.worker;
  }
  SKEIN_CHECK(!replicas_.empty()) << "a stage without a replica";
}

void StageSync::expect(ReplicaId replica, uint64_t step) {
  Replica& own = replicas_.at(replica);
  SKEIN_CHECK(!own.is_lost) << replica << " is lost";
  own.step = step;
  own.has_asked = false;
  own.report.reset();
  own.norm_squared.reset();
}

void StageSync::expect_all(uint64_t step) {
  for (const auto& [id, replica] : replicas_) {
    if (!replica.is_lost) expect(id, step);
  }
}

std::optional<DropReason> StageSync::check_sender(WorkerId sender, ReplicaId replica) const {
  const auto own = replicas_.find(replica);
  if (own == replicas_.end() || own->second.is_lost) return DropReason::kUnknown;
  if (own->second.worker != sender) return DropReason::kNotAllowed;
  return std::nullopt;
}

std::optional<DropReason> StageSync::check_awaited(WorkerId sender, ReplicaId replica,
                                                   uint64_t step) const {
  if (const auto why = check_sender(sender, replica)) return why;
  const std::optional<uint64_t>& awaited = replicas_.at(replica).step;
  if (!awaited) return DropReason::kUnexpected;
  if (step != *awaited) return step < *awaited ? DropReason::kStale : DropReason::kEarly;
  return std::nullopt;
}

std::optional<DropReason> StageSync::on_early_signal(WorkerId sender, ReplicaId replica,
                                                     uint64_t step) {
  if (const auto why = check_awaited(sender, replica, step)) return why;
  if (std::exchange(replicas_.at(replica).has_asked, true)) return DropReason::kRepeated;
  return std::nullopt;
}

std::optional<DropReason> StageSync::on_ready(WorkerId sender, const ReadyReport& report) {
  if (const auto why = check_awaited(sender, report.replica, report.step)) return why;
  Replica& own = replicas_.at(report.replica);
  if (own.report) return DropReason::kRepeated;
  own.has_asked = true;
  own.report = report;
  if (!report.needs_groups) own.norm_squared = report.norm_squared;
  return std::nullopt;
}

std::optional<DropReason> StageSync::on_reduced(WorkerId sender, ReplicaId replica, uint64_t step,
                                                double norm_squared) {
  if (const auto why = check_awaited(sender, replica, step)) return why;
  Replica& own = replicas_.at(replica);
  if (!own.report) return DropReason::kEarly;
  if (own.norm_squared) return DropReason::kRepeated;
  own.norm_squared = norm_squared;
  return std::nullopt;
}

Outcome<std::vector<EndedGroup>> StageSync::on_group_done(WorkerId sender, ReplicaId replica,
                                                          uint64_t number, bool ok) {
  if (const auto why = check_sender(sender, replica)) return Dropped{*why};
  const auto group = groups_.find(number);
  if (group == groups_.end()) return Dropped{DropReason::kStale};
  if (!group->second.members.contains(replica)) return Dropped{DropReason::kNotAllowed};
  if (group->second.awaited.erase(replica) == 0) return Dropped{DropReason::kRepeated};
  group->second.ok = group->second.ok && ok;
  std::vector<EndedGroup> ended;
  if (auto over = take_if_ended(group)) ended.push_back(*std::move(over));
  return ended;
}

void StageSync::begin_group(uint64_t number, const std::set<ReplicaId>& members) {
  SKEIN_CHECK(!members.empty()) << "group " << number << " has no member";
  for (ReplicaId each : members) {
    SKEIN_CHECK(has(each) && !is_lost(each)) << "group " << number << " has " << each;
    SKEIN_CHECK(!is_in_group(each)) << each << " of group " << number << " is in another one";
  }
  const bool is_new = groups_.emplace(number, Group{true, members, members}).second;
  SKEIN_CHECK(is_new) << "group " << number << " begins twice";
}

StageSync::Abort StageSync::abort_group(uint64_t number) {
  const auto group = groups_.find(number);
  SKEIN_CHECK(group != groups_.end()) << "group " << number << " does not run";
  group->second.ok = false;
  Abort abort;
  abort.awaited.assign(group->second.awaited.begin(), group->second.awaited.end());
  abort.ended = take_if_ended(group);
  return abort;
}

std::optional<EndedGroup> StageSync::take_if_ended(std::map<uint64_t, Group>::iterator group) {
  if (!group->second.awaited.empty()) return std::nullopt;
  EndedGroup ended{group->first, group->second.ok, std::move(group->second.members)};
  groups_.erase(group);
  return ended;
}

void StageSync::lose(ReplicaId replica) {
  Replica& own = replicas_.at(replica);
  own.is_lost = true;
  own.step.reset();
  own.report.reset();
  own.norm_squared.reset();
  for (auto& [number, group] : groups_) group.awaited.erase(replica);
}

bool StageSync::is_final(ReplicaId replica) const {
  return replicas_.at(replica).norm_squared.has_value();
}

bool StageSync::is_complete() const {
  return std::all_of(replicas_.begin(), replicas_.end(),
                     [](const auto& each) { return each.second.norm_squared.has_value(); });
}

bool StageSync::is_in_group(ReplicaId replica) const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [&](const auto& each) { return each.second.awaited.contains(replica); });
}

bool StageSync::is_member(uint64_t group, ReplicaId replica) const {
  const auto found = groups_.find(group);
  return found != groups_.end() && found->second.members.contains(replica);
}

const ReadyReport& StageSync::report(ReplicaId replica) const {
  const Replica& own = replicas_.at(replica);
  SKEIN_CHECK(own.report) << replica << " has not reported";
  return *own.report;
}

double StageSync::norm_squared() const {
  const Replica& first = replicas_.begin()->second;
  SKEIN_CHECK(first.norm_squared) << "the stage is not complete";
  return *first.norm_squared;
}

std::vector<ReplicaId> StageSync::live() const {
  std::vector<ReplicaId> live;
  for (const auto& [id, replica] : replicas_) {
    if (!replica.is_lost) live.push_back(id);
  }
  return live;
}

void StageSync::check_invariants() const {
  for (const auto& [id, replica] : replicas_) {
    const bool fits = !replica.report || (replica.step && replica.report->step == *replica.step);
    SKEIN_CHECK(fits) << id << " has reported another step";
    SKEIN_CHECK(!replica.report || replica.has_asked) << id << " has reported unasked";
    SKEIN_CHECK(!replica.norm_squared || replica.report) << id << " has a norm and no report";
    SKEIN_CHECK(!replica.is_lost || (!replica.step && !is_in_group(id))) << id << " is lost";
  }
  std::set<ReplicaId> awaited;
  for (const auto& [number, group] : groups_) {
    SKEIN_CHECK(!group.awaited.empty() || !group.ok) << "group " << number << " awaits nobody";
    for (ReplicaId each : group.awaited) {
      SKEIN_CHECK(group.members.contains(each)) << each << " is no member of group " << number;
      SKEIN_CHECK(awaited.insert(each).second) << each << " is in two groups";
    }
  }
}

}  // namespace skein::plans
