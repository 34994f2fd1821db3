#include "plans/modes/column_loop.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/plan/column_plan.hpp"
#include "plans/sync/policy_kind.hpp"

namespace skein::plans {

ColumnLoop::ColumnLoop(const JobSpec& job, const Plan& plan)
    : layout_(column_layout(plan)),
      plan_(plan),
      batch_(static_cast<uint64_t>(job.training.global_batch_size)),
      samples_each_(column_samples(job)),
      profiles_(job.profiling.enable_profiling),
      profile_freq_(static_cast<uint64_t>(std::max<int64_t>(1, job.profiling.profile_freq))),
      columns_(layout_.columns),
      has_server_(has_server(job)),
      carried_(layout_) {}

CoordinatorDecisions ColumnLoop::begin_segment(uint64_t first_step, uint64_t end_step) {
  SKEIN_CHECK(is_common_ && first_step < end_step) << "the segment before has not ended";
  end_step_ = end_step;
  is_common_ = is_meeting_ = has_ended_ = has_pushed_ = false;
  iterations_.clear();
  staleness_max_ = 0;
  pool_.emplace(LeaseState{
      .samples = end_step * batch_, .samples_each = samples_each_, .fresh = first_step * batch_});
  for (Column& each : columns_) each.has_committed = false;
  profiles_segment_ =
      profiles_ && (!profiled_step_ || first_step >= *profiled_step_ + profile_freq_);
  if (profiles_segment_) profiled_step_ = first_step;
  CoordinatorDecisions decisions;
  for (uint32_t column = 0; column < layout_.columns; ++column) resume(column, decisions);
  return decisions;
}

/// Samples of a lost column are for whoever has nothing to do.
void ColumnLoop::redo_returned(CoordinatorDecisions& decisions) {
  for (uint32_t column = 0; column < layout_.columns; ++column) {
    if (!pool_->state().returned.empty()) resume(column, decisions);
  }
}

void ColumnLoop::cut_short() {
  if (is_common_ || is_meeting_) return;
  const uint64_t fresh = pool_->state().fresh;
  end_step_ = std::min(end_step_, (fresh + batch_ - 1) / batch_);
  pool_->limit(end_step_ * batch_);
}

/// Lets a column that does nothing have samples, if there are any. It may be in the push of a
/// segment's end: then once it is through.
void ColumnLoop::resume(uint32_t column, CoordinatorDecisions& decisions) {
  Column& own = columns_[column];
  if (own.is_lost || own.is_computing) return;
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    if (is_combining(layout_.replica(stage, column))) return;
  }
  const std::optional<SampleLease> lease = pool_->lease(column);
  if (!lease) return leave_policy(column, decisions);
  own.is_computing = true;
  own.lease = *lease;
  decisions.push_back(LeaseSamples{column, own.step, *lease, is_profiled()});
  if (own.has_policy) return;
  own.has_policy = true;
  decisions.push_back(TellPolicy{MembershipChange{column, true, own.step}});
}

void ColumnLoop::leave_policy(uint32_t column, CoordinatorDecisions& decisions) {
  if (!std::exchange(columns_[column].has_policy, false)) return;
  decisions.push_back(TellPolicy{MembershipChange{column, false, columns_[column].step}});
}

CoordinatorDecisions ColumnLoop::on_ready(const ReadyReport& report) {
  if (!layout_.has(report.replica)) return drop();
  const uint32_t column = layout_.column_of(report.replica);
  Column& own = columns_[column];
  if (own.is_lost || !own.is_computing || report.step != own.step ||
      !own.ready.emplace(layout_.stage_of(report.replica), report).second) {
    return drop();
  }
  if (own.ready.size() < layout_.stages) return {};
  return commit(column);
}

/// From the start of a segment until all columns have done an iteration: fast ones several.
bool ColumnLoop::is_profiled() const {
  return profiles_segment_ && std::any_of(columns_.begin(), columns_.end(), [](const Column& each) {
           return !each.is_lost && !each.has_committed;
         });
}

SegmentTotals ColumnLoop::totals() const {
  SegmentTotals totals = totals_of(layout_, iterations_);
  totals.staleness_max = staleness_max_;
  return totals;
}

/// None, too, if the others are through with the segment before this column would be through with
/// one more iteration: nobody waits for the slowest one at the end of a segment.
std::optional<SampleLease> ColumnLoop::next_lease(uint32_t column) {
  if (would_be_last(column)) return std::nullopt;
  return pool_->lease(column);
}

bool ColumnLoop::would_be_last(uint32_t column) const {
  const LeaseState& pool = pool_->state();
  if (!pool.returned.empty()) return false;
  double rate = 0;   // Of the others, leases a microsecond.
  double count = 0;  // Of leases: what is left, and what the others are at.
  for (uint32_t other = 0; other < layout_.columns; ++other) {
    if (other == column || !columns_[other].is_computing) continue;
    if (columns_[other].busy_us == 0) return false;
    rate += 1 / static_cast<double>(columns_[other].busy_us);
    ++count;
  }
  if (rate == 0) return false;
  count += static_cast<double>((pool.samples - pool.fresh) / pool.samples_each);
  return static_cast<double>(columns_[column].busy_us) > count / rate;
}

CoordinatorDecisions ColumnLoop::commit(uint32_t column) {
  Column& own = columns_[column];
  const ColumnIteration& iteration = iterations_.emplace_back(
      ColumnIteration{column, own.step, own.lease, std::exchange(own.ready, {})});
  own.busy_us = iteration.busy_us();
  CommitColumn commit;
  commit.column = column;
  commit.step = own.step;
  commit.gradient_norm = iteration.gradient_norm();
  commit.lease = own.lease;
  if (!std::isfinite(iteration.loss_sum()) || !std::isfinite(commit.gradient_norm)) {
    return {diverged(absl::StrCat("column ", column, ", samples from ", own.lease.first),
                     iteration.loss_sum() / static_cast<double>(iteration.loss_tokens()),
                     commit.gradient_norm)};
  }
  carried_.on_update(column);
  SKEIN_CHECK(pool_->finish(column, own.lease.first)) << "column " << column << " has no lease";
  commit.next = next_lease(column);
  const uint64_t step = own.step++;
  own.has_committed = true;
  commit.profile = commit.next && is_profiled();
  CoordinatorDecisions decisions = {commit};
  if (!commit.next) {
    own.is_computing = false;
    leave_policy(column, decisions);
    try_meet(decisions);
    return decisions;
  }
  own.lease = *commit.next;
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    const ReplicaId replica = layout_.replica(stage, column);
    waiting_.insert(replica);
    decisions.push_back(TellPolicy{ReadySignal{replica, step}});
  }
  return decisions;
}

/// Has to say that it is through with a group.
bool ColumnLoop::is_combining(ReplicaId replica) const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [&](const auto& each) { return each.second.awaited.contains(replica); });
}

CoordinatorDecisions ColumnLoop::on_group_start(const GroupStart& start) {
  std::vector<ReplicaId> waiting;
  const bool is_served = start.combination == Combination::kServer;
  const bool is_local = start.combination == Combination::kLocal;
  bool is_possible = !is_served || !has_lost();  // A lost column has taken its shard along.
  for (const GroupMember& member : start.members) {
    const bool is_lost = columns_[layout_.column_of(member.replica)].is_lost;
    const bool is_taken = !is_local && is_combining(member.replica);
    if (is_lost || is_taken) is_possible = false;
    if (is_lost || member.is_passive) continue;
    if (!waiting_.contains(member.replica)) return drop();
    waiting.push_back(member.replica);
  }
  for (ReplicaId replica : waiting) waiting_.erase(replica);
  if (!is_possible) return refuse(start, waiting);
  CombineWeights combine;
  combine.number = next_number_++;
  combine.stage = start.stage;
  combine.members = start.members;
  combine.staleness = start.staleness;
  staleness_max_ = std::max(staleness_max_, start.staleness);
  if (is_local) return {combine};
  Group group;
  group.policy_number = start.number;
  group.has_server = is_served;
  if (is_served) {
    combine.shards = live_replicas(static_cast<uint32_t>(start.stage));
    // The policy's weights depend on who is in its hands now; a sample counts the same at all
    // times.
    for (GroupMember& each : combine.members) each.weight = 1.0 / layout_.columns;
  }
  add_group(combine, std::move(group));
  return {combine};
}

void ColumnLoop::add_group(const CombineWeights& combine, Group group) {
  group.stage = static_cast<uint32_t>(combine.stage);
  group.put_in = carried_.put_in(group.stage, combine.members, group.has_server);
  for (const GroupMember& member : combine.members) group.members.insert(member.replica);
  group.awaited = group.members;
  groups_[combine.number] = std::move(group);
}

/// The policy had not heard yet that a column is lost, or of one that came back to it that it is
/// still in a group of before; or the server has lost a shard. Who waits goes on alone.
CoordinatorDecisions ColumnLoop::refuse(const GroupStart& start,
                                        const std::vector<ReplicaId>& waiting) {
  CoordinatorDecisions decisions;
  for (ReplicaId replica : waiting) {
    CombineWeights alone;
    alone.number = next_number_++;
    alone.stage = start.stage;
    alone.members = {{replica, columns_[layout_.column_of(replica)].step, 1}};
    decisions.push_back(std::move(alone));
  }
  if (start.combination != Combination::kLocal) {
    decisions.push_back(TellPolicy{GroupOutcome{start.number, false}});
  }
  return decisions;
}

std::vector<ReplicaId> ColumnLoop::live_replicas(uint32_t stage) const {
  std::vector<ReplicaId> live;
  for (uint32_t column = 0; column < layout_.columns; ++column) {
    if (!columns_[column].is_lost) live.push_back(layout_.replica(stage, column));
  }
  return live;
}

CoordinatorDecisions ColumnLoop::on_combined(ReplicaId replica, uint64_t number, bool ok) {
  const auto group = groups_.find(number);
  if (group == groups_.end() || group->second.awaited.erase(replica) == 0) return drop();
  group->second.is_ok = group->second.is_ok && ok;
  CoordinatorDecisions decisions;
  end_if_over(group, decisions);
  redo_returned(decisions);
  try_meet(decisions);
  return decisions;
}

void ColumnLoop::end_if_over(std::map<uint64_t, Group>::iterator group,
                             CoordinatorDecisions& decisions) {
  if (!group->second.awaited.empty()) return;
  const Group ended = group->second;
  groups_.erase(group);
  const bool has_live = std::any_of(ended.members.begin(), ended.members.end(), [&](ReplicaId id) {
    return !columns_[layout_.column_of(id)].is_lost;
  });
  if (!has_live) return;
  if (ended.is_ok) carried_.on_combined(ended.stage, ended.members, ended.put_in, ended.has_server);
  if (!ended.is_closing) {
    decisions.push_back(TellPolicy{GroupOutcome{ended.policy_number, ended.is_ok}});
    return;
  }
  if (!ended.is_common) return;
  has_failed_ = has_failed_ || !ended.is_ok;
  if (!groups_.empty() || has_failed_) return;
  is_meeting_ = false;
  is_common_ = has_ended_ = true;
  carried_.on_common();
}

/// Once nobody has anything left to do.
void ColumnLoop::try_meet(CoordinatorDecisions& decisions) {
  if (is_meeting_ || is_common_ || has_failed_ || !pool_ || !pool_->is_over() || !groups_.empty()) {
    return;
  }
  for (const Column& each : columns_) {
    if (each.is_computing) return;
  }
  const bool pushes = has_server_ && !has_lost() && !std::exchange(has_pushed_, true);
  is_meeting_ = !pushes;
  close(!pushes, decisions);
}

/// Groups of all columns at every stage.
void ColumnLoop::close(bool is_common, CoordinatorDecisions& decisions) {
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    const std::vector<ReplicaId> live = live_replicas(stage);
    CombineWeights combine;
    combine.number = next_number_++;
    combine.stage = static_cast<int32_t>(stage);
    combine.is_closing = true;
    combine.is_common = is_common;
    combine.steps_done = end_step_;
    if (!is_common) combine.shards = live;
    Group group;
    group.is_closing = true;
    group.is_common = is_common;
    group.has_server = !is_common;
    for (ReplicaId replica : live) {
      combine.members.push_back({replica, columns_[layout_.column_of(replica)].step,
                                 1.0 / static_cast<double>(live.size())});
    }
    add_group(combine, std::move(group));
    decisions.push_back(std::move(combine));
  }
}

std::set<uint32_t> ColumnLoop::columns_of(WorkerId worker) const {
  std::set<uint32_t> columns;
  for (const StagePlan& stage : plan_.stages) {
    for (const ReplicaPlan& replica : stage.replicas) {
      if (replica.worker == worker) columns.insert(layout_.column_of(replica.id));
    }
  }
  return columns;
}

void ColumnLoop::dissolve_groups_of(uint32_t column, CoordinatorDecisions& decisions) {
  for (auto each = groups_.begin(); each != groups_.end();) {
    const auto group = each++;
    const auto is_lost = [&](ReplicaId id) { return layout_.column_of(id) == column; };
    // Also if it was through: what it has sent may be on its way, or gone with it.
    const std::set<ReplicaId>& members = group->second.members;
    const bool has_member = std::any_of(members.begin(), members.end(), is_lost);
    if (!has_member && !group->second.has_server) continue;
    std::set<ReplicaId>& awaited = group->second.awaited;
    std::erase_if(awaited, is_lost);
    if (group->second.is_common) has_failed_ = true;
    group->second.is_ok = false;
    if (!awaited.empty()) {
      decisions.push_back(DissolveGroup{group->first, {awaited.begin(), awaited.end()}});
    }
    end_if_over(group, decisions);
  }
}

/// Gives the samples back whose updates are in the weights of lost columns only, at some stage.
void ColumnLoop::redo_lost_iterations() {
  std::vector<uint32_t> live;
  for (uint32_t column = 0; column < layout_.columns; ++column) {
    if (!columns_[column].is_lost) live.push_back(column);
  }
  std::erase_if(iterations_, [&](const ColumnIteration& each) {
    if (each.step < carried_.carried(each.column, live)) return false;
    pool_->undo(each.column, each.lease);
    return true;
  });
}

CoordinatorDecisions ColumnLoop::lose(WorkerId worker) {
  CoordinatorDecisions decisions;
  bool is_news = false;
  for (uint32_t column : columns_of(worker)) {
    Column& own = columns_[column];
    if (std::exchange(own.is_lost, true)) continue;
    is_news = true;
    own.is_computing = false;
    own.ready.clear();
    std::erase_if(waiting_, [&](ReplicaId id) { return layout_.column_of(id) == column; });
    if (pool_) pool_->forget(column);
    // First: with the outcome of its groups the policy might put it into others.
    leave_policy(column, decisions);
    dissolve_groups_of(column, decisions);
  }
  if (!is_news) return decisions;
  // The mean may have been taken in part.
  has_failed_ = has_failed_ || is_meeting_ ||
                std::all_of(columns_.begin(), columns_.end(),
                            [](const Column& each) { return each.is_lost; });
  if (has_failed_ || is_common_) return decisions;
  redo_lost_iterations();
  redo_returned(decisions);
  try_meet(decisions);
  return decisions;
}

bool ColumnLoop::has_lost() const {
  return std::any_of(columns_.begin(), columns_.end(),
                     [](const Column& each) { return each.is_lost; });
}

CoordinatorDecisions ColumnLoop::drop() {
  ++dropped_;
  return {};
}

}  // namespace skein::plans
