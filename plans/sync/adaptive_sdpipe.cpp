#include "plans/sync/adaptive_sdpipe.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/upper_median.hpp"

namespace skein::plans {
namespace {

constexpr size_t kStepsKept = 32;          // Of a column: enough to see a stall rate of a tenth.
constexpr double kForwardShare = 1.0 / 3;  // Of a step: a backward is two products a weight.
constexpr size_t kStepsMin = 5;            // Below that nothing is known of a column.

/// Tighter ones first.
std::vector<SyncCandidate> candidates_of(const AdaptiveSdpipeOptions& options) {
  std::vector<SyncCandidate> candidates;
  for (const uint64_t local_steps : options.local_steps) {
    for (const uint64_t period : options.periods) {
      candidates.push_back({SyncCandidate::Kind::kSdpipe, period, local_steps});
    }
  }
  return candidates;
}

/// What a ring of so many takes, in exchanges: as in `PolicySimulationOptions`.
double ring_share(size_t members) {
  const auto count = static_cast<double>(members);
  return 2 * (count - 1) / count;
}

}  // namespace

AdaptiveSdpipePolicy::AdaptiveSdpipePolicy(const ColumnLayout& layout,
                                           AdaptiveSdpipeOptions options)
    : layout_(layout),
      options_(std::move(options)),
      sdpipe_(layout, options_.sdpipe),
      chooser_(options_.chooser, candidates_of(options_),
               {SyncCandidate::Kind::kSdpipe, options_.sdpipe.period, options_.sdpipe.local_steps}),
      paces_(layout.columns),
      is_present_(layout.columns, true),
      steps_between_looks_(options_.steps_between_looks) {}

void AdaptiveSdpipePolicy::begin(ReplicaId replica, uint64_t now_us) {
  if (layout_.stage_of(replica) > 0) return;
  Pace& pace = paces_[layout_.column_of(replica)];
  pace.is_computing = true;
  pace.since_us = now_us;
}

/// Who is alone goes on at once; of the others we hear.
GroupDecisions AdaptiveSdpipePolicy::follow(GroupDecisions decisions, uint64_t now_us) {
  for (const GroupStart& start : decisions.starts) {
    if (start.combination == Combination::kLocal) {
      begin(start.members[0].replica, now_us);
      continue;
    }
    Group& group = groups_[start.number];
    group.since_us = now_us;
    for (const GroupMember& member : start.members) group.members.push_back(member.replica);
  }
  return decisions;
}

GroupDecisions AdaptiveSdpipePolicy::on_ready(const ReadySignal& signal, uint64_t now_us) {
  if (!layout_.has(signal.replica)) return {};
  GroupDecisions looked;
  if (layout_.stage_of(signal.replica) == 0) {
    Pace& pace = paces_[layout_.column_of(signal.replica)];
    if (pace.is_computing && now_us > pace.since_us) {
      pace.steps_us.push_back(static_cast<double>(now_us - pace.since_us));
      if (pace.steps_us.size() > kStepsKept) pace.steps_us.pop_front();
      ++steps_seen_;
    }
    pace.is_computing = false;
    if (steps_seen_ >= steps_between_looks_ * layout_.columns) look(looked);
  }
  GroupDecisions decisions = follow(sdpipe_.on_ready(signal, now_us), now_us);
  decisions.changes = std::move(looked.changes);
  return decisions;
}

StragglerProfile AdaptiveSdpipePolicy::observed_profile(
    const std::vector<std::vector<double>>& steps_us) const {
  StragglerProfile profile = options_.profile;
  profile.layout = {static_cast<uint32_t>(steps_us.size()), layout_.stages};
  measure_stragglers(steps_us, profile);
  if (!profile.forward_us.empty()) return profile;
  double fastest_us = upper_median(steps_us.front());
  for (const auto& column : steps_us) fastest_us = std::min(fastest_us, upper_median(column));
  const double stage_us = fastest_us / layout_.stages;
  profile.forward_us.assign(layout_.stages, stage_us * kForwardShare);
  profile.backward_us.assign(layout_.stages, stage_us * (1 - kForwardShare));
  if (!exchanges_us_.empty()) {
    profile.exchange_us = upper_median({exchanges_us_.begin(), exchanges_us_.end()});
  }
  return profile;
}

void AdaptiveSdpipePolicy::look(GroupDecisions& decisions) {
  steps_seen_ = 0;
  std::vector<std::vector<double>> steps_us;
  for (uint32_t column = 0; column < layout_.columns; ++column) {
    const std::deque<double>& own = paces_[column].steps_us;
    if (!is_present_[column]) continue;
    if (own.size() < kStepsMin) return;
    steps_us.emplace_back(own.begin(), own.end());
  }
  if (steps_us.size() < 2) return;
  const std::optional<SyncChoice> choice = chooser_.observe(observed_profile(steps_us));
  if (!choice) {
    if (chooser_.is_wavering()) return;
    steps_between_looks_ = std::min(2 * steps_between_looks_, options_.steps_between_looks_max);
    return;
  }
  steps_between_looks_ = options_.steps_between_looks;
  const SyncCandidate& chosen = choice->candidate;
  sdpipe_.change(chosen.period, chosen.local_steps, options_.chooser.averages_moments(chosen));
  ++change_count_;
  decisions.changes.push_back(choice->reason);
}

GroupDecisions AdaptiveSdpipePolicy::on_group_end(const GroupOutcome& outcome, uint64_t now_us) {
  const auto group = groups_.find(outcome.number);
  if (group != groups_.end()) {
    for (const ReplicaId member : group->second.members) begin(member, now_us);
    if (group->second.members.size() > 1) {  // Of one whose others have died nothing is learnt.
      const auto took_us = static_cast<double>(now_us - group->second.since_us);
      exchanges_us_.push_back(took_us / ring_share(group->second.members.size()));
    }
    if (exchanges_us_.size() > kStepsKept) exchanges_us_.pop_front();
    groups_.erase(group);
  }
  return follow(sdpipe_.on_group_end(outcome, now_us), now_us);
}

GroupDecisions AdaptiveSdpipePolicy::on_membership(const MembershipChange& change,
                                                   uint64_t now_us) {
  if (change.column >= layout_.columns || is_present_[change.column] == change.joins) return {};
  is_present_[change.column] = change.joins;
  paces_[change.column] = {.is_computing = change.joins, .since_us = now_us};
  for (auto& [number, group] : groups_) {
    std::erase_if(group.members,
                  [&](ReplicaId id) { return layout_.column_of(id) == change.column; });
  }
  std::erase_if(groups_, [](const auto& group) { return group.second.members.empty(); });
  return follow(sdpipe_.on_membership(change, now_us), now_us);
}

}  // namespace skein::plans
