#include "plans/coordinator/membership.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/units.hpp"
#include "plans/elastic/route_around.hpp"
#include "plans/plan/layout_plan.hpp"

namespace skein::plans {

bool is_same_process(const JoinRequest& one, const JoinRequest& other) {
  return one.host_name == other.host_name && one.process_id == other.process_id &&
         one.data_address == other.data_address;
}

namespace {

/// Names are as a worker says; it cannot choose where its connection comes from.
std::vector<std::string> places_of(const JoinRequest& request) {
  if (request.host_name == request.remote_host) return {request.host_name};
  return {request.host_name, request.remote_host};
}

}  // namespace

Membership::Membership(double lease_seconds, const std::optional<Plan>& last)
    : lease_us_(lease_seconds * kMicrosecondsPerSecond),
      is_first_life_(!last),
      hosts_(lease_seconds) {
  if (!last) return;
  last_worker_ = plan_workers(*last).rbegin()->value;
}

/// A number that nobody was given is not taken from the one who will be given it. An earlier life
/// may have given numbers that no plan had.
WorkerId Membership::number(const JoinRequest& request) {
  const WorkerId before = request.previous;
  const bool was_given = before.value <= (is_first_life_ ? last_worker_ : kWorkerIdMax);
  if (before.value != 0 && was_given && !members_.contains(before)) return before;
  do {
    last_worker_ = last_worker_ % kWorkerIdMax + 1;
  } while (members_.contains(WorkerId{last_worker_}));
  return WorkerId{last_worker_};
}

Member& Membership::admit(PeerNumber peer, JoinRequest request, bool has_trained, uint64_t now_us) {
  SKEIN_CHECK(!has_peer(peer)) << "connection " << peer << " has a member";
  seen_generation_ = std::max(seen_generation_, request.generation);
  const WorkerId worker = number(request);
  Member& member = members_[worker];
  member.peer = peer;
  member.id = worker;
  member.may_hold_state = request.previous.value != 0;
  member.is_newcomer = has_trained && request.previous.value == 0;
  member.request = std::move(request);
  member.joined_us = member.last_heard_us = now_us;
  member.eligible_us = hold_back_.eligible_us(worker, now_us);
  if (member.eligible_us > now_us) {
    member.held_back_why = absl::StrCat("w", worker.value, " is flapping");
  }
  if (member.is_newcomer) {
    HostRecords::Hold hold = hosts_.hold(places_of(member.request), now_us);
    if (hold.until_us > member.eligible_us) {
      member.eligible_us = hold.until_us;
      member.held_back_why = std::move(hold.why);
    }
  }
  last_join_us_ = now_us;
  return member;
}

void Membership::lose(WorkerId worker, bool had_part, uint64_t now_us) {
  if (!members_.at(worker).has_failed) record_loss(worker, had_part, now_us);
  members_.erase(worker);
}

void Membership::record_loss(WorkerId worker, bool had_part, uint64_t now_us) {
  hold_back_.on_lost(worker, now_us);
  const Member& member = members_.at(worker);
  if (member.is_newcomer) {
    hosts_.on_lost(places_of(member.request), member.eligible_us, had_part, now_us);
  }
}

void Membership::on_heard(WorkerId worker, uint64_t now_us) {
  const auto member = members_.find(worker);
  if (member != members_.end()) member->second.last_heard_us = now_us;
}

Outcome<CoordinatorDecisions> Membership::on_heartbeat(WorkerId worker, WorkerActivity activity,
                                                       uint64_t now_us) {
  const auto member = members_.find(worker);
  if (member == members_.end()) return Dropped{DropReason::kUnknown};
  member->second.last_heard_us = now_us;
  WorkerActivity& known = member->second.activity;
  activity.steps_done = std::max(known.steps_done, activity.steps_done);
  if (activity.device.empty()) activity.device = known.device;
  const bool is_news = activity.device != known.device;
  known = std::move(activity);
  // Most compute on what they have asked for, as they said when they joined.
  if (!is_news || known.device == member->second.request.device) return CoordinatorDecisions{};
  return CoordinatorDecisions{
      RunEvent{"worker.device",
               absl::StrCat("w", worker.value, " computes on ", known.device),
               {{"worker", absl::StrCat(worker.value)}, {"device", known.device}},
               /*anybody_may_cause=*/true}};
}

bool Membership::mark_leaving(WorkerId worker) {
  Member& member = members_.at(worker);
  const bool was_counted_on = std::exchange(member.lacked_of, 0) != 0;
  return !std::exchange(member.leaves, true) || was_counted_on;
}

bool Membership::mark_failed(WorkerId worker, size_t lacked_of, bool had_part, uint64_t now_us) {
  Member& member = members_.at(worker);
  const bool is_for_good = lacked_of == 0;
  if (member.has_failed && !(is_for_good && member.lacked_of != 0)) return false;
  if (!member.has_failed) record_loss(worker, had_part, now_us);
  member.lacked_of = member.leaves ? 0 : lacked_of;
  if (member.trained_of == lacked_of) member.trained_of = 0;  // Not with what it holds by now.
  member.leaves = member.has_failed = true;
  return true;
}

void Membership::mark_trained(WorkerId worker, size_t of) {
  Member& member = members_.at(worker);
  member.has_trained = true;
  member.trained_of = of;
}

size_t Membership::count_able(uint64_t now_us) const {
  return static_cast<size_t>(std::count_if(members_.begin(), members_.end(), [&](const auto& each) {
    return may_work(each.second, now_us, Leavers::kWithout);
  }));
}

bool Membership::count_on_full_again(const WorkerPairs& apart, uint64_t now_us) {
  std::vector<Member*> full;
  std::vector<WorkerId> able;
  for (auto& [id, member] : members_) {
    if (member.lacked_of != 0 && member.eligible_us <= now_us) full.push_back(&member);
    if (may_work(member, now_us, Leavers::kWithout)) able.push_back(id);
  }
  const auto lacks_among = [](size_t of) {
    return
        [of](const Member* member) { return of <= member->lacked_of && of != member->trained_of; };
  };
  for (size_t of = able.size() + full.size(); !full.empty() && of > 0; --of) {
    std::vector<Member*> again = full;
    std::erase_if(again, lacks_among(of));
    std::vector<WorkerId> all = able;
    for (const Member* member : again) all.push_back(member->id);
    const size_t could_work = who_reach_one_another(apart, std::move(all)).size();
    const bool is_enough = std::none_of(again.begin(), again.end(), lacks_among(could_work));
    if (again.empty() || !is_enough) continue;
    for (Member* member : again) {
      member->lacked_of = 0;
      member->leaves = member->has_failed = false;
    }
    return true;
  }
  return false;
}

bool Membership::has_peer(PeerNumber peer) const {
  return std::any_of(members_.begin(), members_.end(),
                     [&](const auto& each) { return each.second.peer == peer; });
}

std::optional<WorkerId> Membership::same_process(const JoinRequest& request) const {
  const auto before = std::find_if(members_.begin(), members_.end(), [&](const auto& each) {
    return is_same_process(each.second.request, request);
  });
  return before != members_.end() ? std::optional(before->first) : std::nullopt;
}

bool Membership::all_have_failed() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const auto& each) { return each.second.has_failed; });
}

bool Membership::some_have_failed() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const auto& each) { return each.second.has_failed; });
}

bool Membership::some_leave() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const auto& each) { return each.second.leaves; });
}

std::optional<uint64_t> Membership::next_eligible_us(uint64_t now_us) const {
  std::optional<uint64_t> next;
  for (const auto& [id, member] : members_) {
    if (member.eligible_us <= now_us) continue;
    next = next ? std::min(*next, member.eligible_us) : member.eligible_us;
  }
  return next;
}

std::vector<Membership::Silent> Membership::silent(uint64_t now_us) const {
  std::vector<Silent> silent;
  for (const auto& [id, member] : members_) {
    const uint64_t heard = std::min(member.last_heard_us, now_us);
    const auto silent_us = static_cast<double>(now_us - heard);
    if (silent_us > lease_us_) silent.push_back({id, silent_us});
  }
  return silent;
}

bool Membership::is_silent(WorkerId worker, uint64_t now_us) const {
  const auto member = members_.find(worker);
  if (member == members_.end()) return false;
  const uint64_t heard = std::min(member->second.last_heard_us, now_us);
  return static_cast<double>(now_us - heard) * 2 > lease_us_;
}

bool Membership::has_all_of(const Plan& plan) const {
  const std::set<WorkerId> workers = plan_workers(plan);
  return std::all_of(workers.begin(), workers.end(),
                     [this](WorkerId worker) { return members_.contains(worker); });
}

void Membership::check_invariants() const {
  hosts_.check_invariants();
  std::set<PeerNumber> peers;
  for (const auto& [id, member] : members_) {
    SKEIN_CHECK(id == member.id && id.value > 0 && id.value <= kWorkerIdMax) << id;
    SKEIN_CHECK(!is_first_life_ || id.value <= last_worker_) << id << " was given to nobody";
    SKEIN_CHECK(peers.insert(member.peer).second) << id << " shares its connection";
  }
}

}  // namespace skein::plans
