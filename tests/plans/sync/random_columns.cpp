#include "tests/plans/sync/random_columns.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace skein::plans {
namespace {

constexpr double kSlow = 0.03;               // Share of the others' speed.
constexpr double kSpeedChangeShare = 0.001;  // Share of the events.
constexpr size_t kRepeatable = 64;

}  // namespace

RandomColumns::RandomColumns(GroupScheduler& policy, const ColumnLayout& layout,
                             const Options& options)
    : policy_(policy),
      layout_(layout),
      options_(options),
      rng_(options.seed),
      live_(layout.columns, true),
      first_step_(layout.columns),
      speed_(layout.columns, 1),
      replicas_(layout.replica_count()) {}

uint32_t RandomColumns::live_count() const {
  return static_cast<uint32_t>(std::count(live_.begin(), live_.end(), true));
}

/// The next stage has made the step's gradient, and all stages before have run it forwards: at most
/// as many steps ahead of their updates as stages follow.
bool RandomColumns::can_compute(uint32_t stage, uint32_t column) const {
  const Replica& replica = at(stage, column);
  if (!live_[column] || replica.is_ready) return false;
  const uint64_t step = replica.ended + 1;
  if (stage + 1 < layout_.stages) {
    const Replica& next = at(stage + 1, column);
    if (next.ended + (next.is_ready ? 1 : 0) < step) return false;
  }
  for (uint32_t before = 0; before < stage; ++before) {
    if (step > at(before, column).ended + static_cast<uint64_t>(layout_.stages - before))
      return false;
  }
  return true;
}

std::vector<RandomColumns::Candidate> RandomColumns::candidates() const {
  std::vector<Candidate> all;
  for (uint32_t replica = 0; replica < replicas_.size(); ++replica) {
    const uint32_t column = layout_.column_of({replica});
    if (!can_compute(layout_.stage_of({replica}), column)) continue;
    all.push_back({false, 0, {replica}, speed_[column]});
  }
  for (const auto& [number, group] : groups_) all.push_back({true, number, {}, 0.7});
  return all;
}

void RandomColumns::run(int events) {
  for (int event = 0; event < events && breach_.empty(); ++event) {
    now_us_ += rng_.below(100);
    if (wake_us_ && now_us_ >= *wake_us_) {
      wake_us_.reset();
      apply(policy_.on_timer(now_us_));
    }
    if (rng_.uniform() < kSpeedChangeShare) {
      for (double& speed : speed_) speed = rng_.uniform() < 0.3 ? kSlow : 1;
    }
    const double draw = rng_.uniform();
    if (draw < options_.death_share) {
      change_someone(false);
    } else if (draw < options_.death_share + options_.join_share) {
      change_someone(true);
    } else if (draw < options_.death_share + options_.join_share + options_.repeat_share) {
      if (!sent_.empty()) apply(policy_.on_ready(sent_[rng_.below(sent_.size())], now_us_));
    } else {
      step();
    }
  }
}

void RandomColumns::settle(uint64_t steps) {
  options_.death_share = options_.join_share = 0;
  std::vector<uint64_t> target;
  for (const Replica& replica : replicas_) target.push_back(replica.ended + steps);
  const int events_max = static_cast<int>(replicas_.size() * steps * 4000 + 100000);
  for (int event = 0; event < events_max && breach_.empty(); ++event) {
    bool is_done = true;
    for (uint32_t replica = 0; replica < replicas_.size(); ++replica) {
      is_done = is_done && (!live_[layout_.column_of({replica})] ||
                            replicas_[replica].ended >= target[replica]);
    }
    if (is_done) return;
    run(1);
  }
  fail("a live column is left behind");
}

void RandomColumns::step() {
  const std::vector<Candidate> all = candidates();
  if (all.empty()) {
    if (!wake_us_ && live_count() > 0) fail("deadlock");
    return;
  }
  double sum = 0;
  for (const Candidate& each : all) sum += each.weight;
  double draw = rng_.uniform() * sum;
  for (const Candidate& each : all) {
    draw -= each.weight;
    if (draw >= 0) continue;
    take(each);
    return;
  }
  take(all.back());
}

void RandomColumns::take(const Candidate& candidate) {
  if (candidate.is_group) return pass(candidate.group);
  Replica& replica = replicas_[candidate.replica.value];
  replica.is_ready = true;
  const uint32_t column = layout_.column_of(candidate.replica);
  const ReadySignal signal{candidate.replica, first_step_[column] + replica.ended};
  if (sent_.size() < kRepeatable) sent_.push_back(signal);
  sent_[rng_.below(sent_.size())] = signal;
  apply(policy_.on_ready(signal, now_us_));
}

/// One more member is through, or all are and the outcome is told.
void RandomColumns::pass(uint64_t number) {
  Group& group = groups_.at(number);
  std::vector<uint32_t> left;
  for (const auto& [column, is_through] : group.is_through) {
    if (!is_through) left.push_back(column);
  }
  if (!left.empty()) {
    const uint32_t column = left[rng_.below(left.size())];
    group.is_through[column] = true;
    Replica& replica = replicas_[layout_.replica(group.start.stage, column).value];
    ++replica.ended;
    replica.is_ready = replica.is_in_group = false;
    if (left.size() > 1 || rng_.uniform() < 0.3) return;
  }
  const bool ok = rng_.uniform() >= options_.failure_share;
  const GroupStart start = group.start;
  for (const auto& [column, is_through] : group.is_through) {
    ++replicas_[layout_.replica(start.stage, column).value].told;
  }
  groups_.erase(number);
  on_end(start, ok);
  apply(policy_.on_group_end({number, ok}, now_us_));
  if (rng_.uniform() < options_.repeat_share) apply(policy_.on_group_end({number, ok}, now_us_));
}

void RandomColumns::change_someone(bool joins) {
  const auto column = static_cast<uint32_t>(rng_.below(layout_.columns));
  if (live_[column] != joins && (joins || live_count() > 1)) change(column, joins);
}

void RandomColumns::change(uint32_t column, bool joins) {
  live_[column] = joins;
  if (!joins) ++deaths_;
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    Replica& replica = replicas_[layout_.replica(stage, column).value];
    // Signals of the new life are of later steps than any of the old one.
    first_step_[column] = std::max(first_step_[column], first_step_[column] + replica.ended + 2);
    replica = {};
  }
  for (auto each = groups_.begin(); each != groups_.end();) {
    each->second.is_through.erase(column);
    each = each->second.is_through.empty() ? groups_.erase(each) : std::next(each);
  }
  const MembershipChange change{column, joins, first_step_[column]};
  on_change(change);
  apply(policy_.on_membership(change, now_us_));
}

void RandomColumns::apply(const GroupDecisions& decisions) {
  for (const GroupStart& start : decisions.starts) {
    check(start);
    if (!breach_.empty()) return;
    on_start(start);
    ++starts_;
    for (const GroupMember& member : start.members) {
      Replica& replica = replicas_[member.replica.value];
      if (start.combination == Combination::kLocal) {
        replica = {.ended = replica.ended + 1, .told = replica.told + 1};
      } else {
        replica.is_in_group = true;
        replica.group = start.number;
        groups_[start.number].start = start;
        groups_[start.number].is_through[layout_.column_of(member.replica)] = false;
      }
    }
  }
  if (decisions.wake_us) wake_us_ = decisions.wake_us;
}

void RandomColumns::check(const GroupStart& start) {
  if (start.number < number_next_) fail(absl::StrCat("group ", start.number, " again"));
  number_next_ = start.number + 1;
  if (start.members.empty()) fail("a group of nobody");
  if (start.combination == Combination::kLocal && start.members.size() > 1) fail("local of two");
  const GroupMember* before = nullptr;
  for (const GroupMember& member : start.members) {
    if (before && !(before->replica < member.replica)) fail("members do not ascend");
    before = &member;
    const uint32_t column = layout_.column_of(member.replica);
    const Replica& replica = replicas_[member.replica.value];
    const std::string who =
        absl::StrCat("group ", start.number, " replica ", member.replica.value, ": ");
    if (!live_[column]) fail(who + "dead");
    if (static_cast<int32_t>(layout_.stage_of(member.replica)) != start.stage)
      fail(who + "of another stage");
    if (!replica.is_ready) fail(who + "not ready");
    if (replica.is_in_group) fail(who + "in a group already");
    if (member.step != first_step_[column] + replica.ended) fail(who + "of another step");
  }
}

}  // namespace skein::plans
