#include "plans/sync/progressive_server.hpp"

#include <algorithm>
#include <utility>

namespace skein::plans {
namespace {

/// Weight of the newest step in the moving average: a single sleep does not make a straggler, and
/// one that has recovered is seen after about ten steps.
constexpr double kNewestShare = 0.2;

/// `count` 0: one.
PipelineGroups first_groups(uint32_t pipelines, int32_t count) {
  return group_by_speed(std::vector<double>(pipelines, 1),
                        std::clamp(count, 1, static_cast<int32_t>(pipelines)));
}

}  // namespace

ProgressiveServerPolicy::ProgressiveServerPolicy(const PipelineLayout& layout,
                                                 const ProgressiveServerOptions& options,
                                                 uint64_t first_step, uint64_t now_us)
    : layout_(layout),
      groups_(layout, first_groups(layout.pipelines, options.regroup.group_count),
              options.has_group_servers, first_step),
      trigger_(options.regroup),
      paces_(layout.replica_count()) {
  for (uint32_t replica = 0; replica < layout.replica_count(); ++replica) begin({replica}, now_us);
}

void ProgressiveServerPolicy::begin(ReplicaId replica, uint64_t now_us) {
  paces_[replica.value].is_computing = true;
  paces_[replica.value].since_us = now_us;
}

GroupDecisions ProgressiveServerPolicy::remembering(GroupDecisions decisions) {
  for (const GroupStart& start : decisions.starts) {
    std::vector<ReplicaId>& members = members_[start.number];
    for (const GroupMember& member : start.members) members.push_back(member.replica);
  }
  return decisions;
}

GroupDecisions ProgressiveServerPolicy::on_ready(const ReadySignal& signal, uint64_t now_us) {
  if (signal.replica.value >= paces_.size()) return {};
  Pace& pace = paces_[signal.replica.value];
  if (pace.is_computing) {
    const auto step_us = static_cast<double>(std::max<uint64_t>(now_us - pace.since_us, 1));
    const double share = pace.step_us > 0 ? kNewestShare : 1;
    pace.step_us += share * (step_us - pace.step_us);
    pace.is_computing = false;
  }
  return remembering(groups_.on_ready(signal, now_us));
}

std::vector<double> ProgressiveServerPolicy::step_times() const {
  std::vector<double> step_us(layout_.pipelines);
  const PipelineGroups groups = groups_.groups();
  for (uint32_t pipeline = 0; pipeline < layout_.pipelines; ++pipeline) {
    if (groups[pipeline] < 0) return {};
    for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
      const double stage_us = paces_[layout_.replica(stage, pipeline).value].step_us;
      if (stage_us == 0) return {};
      step_us[pipeline] = std::max(step_us[pipeline], stage_us);
    }
  }
  return step_us;
}

GroupDecisions ProgressiveServerPolicy::on_group_end(const GroupOutcome& outcome, uint64_t now_us) {
  const auto members = members_.find(outcome.number);
  if (members == members_.end()) return {};
  for (const ReplicaId replica : members->second) {
    begin(replica, now_us);
    if (layout_.stage_of(replica) == 0) ++steps_seen_;
  }
  members_.erase(members);
  GroupDecisions decisions = groups_.on_group_end(outcome, now_us);
  if (steps_seen_ >= layout_.pipelines && !groups_.is_regrouping()) {
    steps_seen_ = 0;
    const std::vector<double> step_us = step_times();
    const auto groups =
        step_us.empty() ? std::nullopt : trigger_.observe(step_us, groups_.groups());
    if (groups) {
      GroupDecisions more = groups_.regroup(*groups);
      std::move(more.starts.begin(), more.starts.end(), std::back_inserter(decisions.starts));
    }
  }
  return remembering(std::move(decisions));
}

GroupDecisions ProgressiveServerPolicy::on_membership(const MembershipChange& change,
                                                      uint64_t now_us) {
  if (change.pipeline >= layout_.pipelines) return {};
  const bool was_there = groups_.groups()[change.pipeline] >= 0;
  if (was_there == change.joins) return {};
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    const ReplicaId replica = layout_.replica(stage, change.pipeline);
    paces_[replica.value].is_computing = false;  // What it has taken counts when it is back.
    if (change.joins) begin(replica, now_us);
    for (auto& [number, members] : members_) std::erase(members, replica);
  }
  std::erase_if(members_, [](const auto& group) { return group.second.empty(); });
  return remembering(groups_.on_membership(change, now_us));
}

}  // namespace skein::plans
