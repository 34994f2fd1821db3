#include "tests/plans/sync/random_pipelines.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace skein::plans {
namespace {

constexpr double kSlow = 0.03;               // Share of the others' speed.
constexpr double kSpeedChangeShare = 0.001;  // Share of the events.
constexpr size_t kRepeatable = 64;

}  // namespace

RandomPipelines::RandomPipelines(GroupScheduler& policy, const PipelineLayout& layout,
                                 const Options& options)
    : policy_(policy),
      layout_(layout),
      options_(options),
      rng_(options.seed),
      live_(layout.pipelines, true),
      first_step_(layout.pipelines),
      speed_(layout.pipelines, 1),
      replicas_(layout.replica_count()) {}

uint32_t RandomPipelines::live_count() const {
  return static_cast<uint32_t>(std::count(live_.begin(), live_.end(), true));
}

/// The next stage has made the step's gradient, and all stages before have run it forwards: at most
/// as many steps ahead of their updates as stages follow.
bool RandomPipelines::can_compute(uint32_t stage, uint32_t pipeline) const {
  const Replica& replica = at(stage, pipeline);
  if (!live_[pipeline] || replica.is_ready) return false;
  const uint64_t step = replica.ended + 1;
  if (stage + 1 < layout_.stages) {
    const Replica& next = at(stage + 1, pipeline);
    if (next.ended + (next.is_ready ? 1 : 0) < step) return false;
  }
  for (uint32_t before = 0; before < stage; ++before) {
    if (step > at(before, pipeline).ended + static_cast<uint64_t>(layout_.stages - before))
      return false;
  }
  return true;
}

std::vector<RandomPipelines::Candidate> RandomPipelines::candidates() const {
  std::vector<Candidate> all;
  for (uint32_t replica = 0; replica < replicas_.size(); ++replica) {
    const uint32_t pipeline = layout_.pipeline_of({replica});
    if (!can_compute(layout_.stage_of({replica}), pipeline)) continue;
    all.push_back({false, 0, {replica}, speed_[pipeline]});
  }
  for (const auto& [number, group] : groups_) all.push_back({true, number, {}, 0.7});
  return all;
}

void RandomPipelines::run(int events) {
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

void RandomPipelines::settle(uint64_t steps) {
  options_.death_share = options_.join_share = 0;
  std::vector<uint64_t> target;
  for (const Replica& replica : replicas_) target.push_back(replica.ended + steps);
  const int events_max = static_cast<int>(replicas_.size() * steps * 4000 + 100000);
  for (int event = 0; event < events_max && breach_.empty(); ++event) {
    bool is_done = true;
    for (uint32_t replica = 0; replica < replicas_.size(); ++replica) {
      is_done = is_done && (!live_[layout_.pipeline_of({replica})] ||
                            replicas_[replica].ended >= target[replica]);
    }
    if (is_done) return;
    run(1);
  }
  fail("a live pipeline replica is left behind");
}

void RandomPipelines::step() {
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

void RandomPipelines::take(const Candidate& candidate) {
  if (candidate.is_group) return pass(candidate.group);
  Replica& replica = replicas_[candidate.replica.value];
  replica.is_ready = true;
  const uint32_t pipeline = layout_.pipeline_of(candidate.replica);
  const ReadySignal signal{candidate.replica, first_step_[pipeline] + replica.ended};
  if (sent_.size() < kRepeatable) sent_.push_back(signal);
  sent_[rng_.below(sent_.size())] = signal;
  apply(policy_.on_ready(signal, now_us_));
}

/// One more member is through, or all are and the outcome is told.
void RandomPipelines::pass(uint64_t number) {
  Group& group = groups_.at(number);
  std::vector<uint32_t> left;
  for (const auto& [pipeline, is_through] : group.is_through) {
    if (!is_through) left.push_back(pipeline);
  }
  if (!left.empty()) {
    const uint32_t pipeline = left[rng_.below(left.size())];
    group.is_through[pipeline] = true;
    Replica& replica = replicas_[layout_.replica(group.start.stage, pipeline).value];
    ++replica.ended;
    replica.is_ready = replica.is_in_group = false;
    if (left.size() > 1 || rng_.uniform() < 0.3) return;
  }
  const bool ok = rng_.uniform() >= options_.failure_share;
  const GroupStart start = group.start;
  for (const auto& [pipeline, is_through] : group.is_through) {
    ++replicas_[layout_.replica(start.stage, pipeline).value].told;
  }
  groups_.erase(number);
  on_end(start, ok);
  apply(policy_.on_group_end({number, ok}, now_us_));
  if (rng_.uniform() < options_.repeat_share) apply(policy_.on_group_end({number, ok}, now_us_));
}

void RandomPipelines::change_someone(bool joins) {
  const auto pipeline = static_cast<uint32_t>(rng_.below(layout_.pipelines));
  if (live_[pipeline] != joins && (joins || live_count() > 1)) change(pipeline, joins);
}

void RandomPipelines::change(uint32_t pipeline, bool joins) {
  live_[pipeline] = joins;
  if (!joins) ++deaths_;
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    Replica& replica = replicas_[layout_.replica(stage, pipeline).value];
    // Signals of the new life are of later steps than any of the old one.
    first_step_[pipeline] =
        std::max(first_step_[pipeline], first_step_[pipeline] + replica.ended + 2);
    replica = {};
  }
  for (auto each = groups_.begin(); each != groups_.end();) {
    each->second.is_through.erase(pipeline);
    each = each->second.is_through.empty() ? groups_.erase(each) : std::next(each);
  }
  const MembershipChange change{pipeline, joins, first_step_[pipeline]};
  on_change(change);
  apply(policy_.on_membership(change, now_us_));
}

void RandomPipelines::apply(const GroupDecisions& decisions) {
  for (const GroupStart& start : decisions.starts) {
    check(start);
    if (!breach_.empty()) return;
    on_start(start);
    ++starts_;
    for (const GroupMember& member : start.members) {
      Replica& replica = replicas_[member.replica.value];
      if (start.average == Average::kLocal) {
        replica = {.ended = replica.ended + 1, .told = replica.told + 1};
      } else {
        replica.is_in_group = true;
        replica.group = start.number;
        groups_[start.number].start = start;
        groups_[start.number].is_through[layout_.pipeline_of(member.replica)] = false;
      }
    }
  }
  if (decisions.wake_us) wake_us_ = decisions.wake_us;
}

void RandomPipelines::check(const GroupStart& start) {
  if (start.number < number_next_) fail(absl::StrCat("group ", start.number, " again"));
  number_next_ = start.number + 1;
  if (start.members.empty()) fail("a group of nobody");
  if (start.average == Average::kLocal && start.members.size() > 1) fail("local of two");
  const GroupMember* before = nullptr;
  for (const GroupMember& member : start.members) {
    if (before && !(before->replica < member.replica)) fail("members do not ascend");
    before = &member;
    const uint32_t pipeline = layout_.pipeline_of(member.replica);
    const Replica& replica = replicas_[member.replica.value];
    const std::string who =
        absl::StrCat("group ", start.number, " replica ", member.replica.value, ": ");
    if (!live_[pipeline]) fail(who + "dead");
    if (static_cast<int32_t>(layout_.stage_of(member.replica)) != start.stage)
      fail(who + "of another stage");
    if (!replica.is_ready) fail(who + "not ready");
    if (replica.is_in_group) fail(who + "in a group already");
    if (member.step != first_step_[pipeline] + replica.ended) fail(who + "of another step");
  }
}

}  // namespace skein::plans
