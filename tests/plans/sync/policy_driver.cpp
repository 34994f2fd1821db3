#include "policy_driver.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/cases.hpp"

namespace skein::plans {
namespace {

constexpr double kStallFactor = 10;
constexpr double kSlowFactor = 4;
constexpr double kTolerance = 1e-9;

}  // namespace

std::vector<std::pair<PipelineLayout, DriverOptions>> driver_settings(const DriverOptions& base) {
  std::vector<std::pair<PipelineLayout, DriverOptions>> settings;
  for (const PipelineLayout& layout :
       {PipelineLayout{1, 1}, PipelineLayout{2, 2}, PipelineLayout{3, 1}, PipelineLayout{4, 3},
        PipelineLayout{8, 1}, PipelineLayout{13, 2}}) {
    for (const bool coupled : {false, true}) {
      for (const double death_rate : {0.0, 0.001, 0.05}) {
        DriverOptions options = base;
        options.events = tests::cases(base.events);
        options.seed += settings.size();
        options.coupled = coupled;
        options.death_rate = death_rate;
        // The longest step, and again for those that a partner waits for, and so on.
        const double longest_us =
            1.5 * kSlowFactor * kStallFactor * static_cast<double>(base.step_us);
        if (coupled || layout.stages == 1) {
          options.wait_us_max = static_cast<uint64_t>(4 * longest_us);
        }
        settings.emplace_back(layout, options);
      }
    }
  }
  return settings;
}

PolicyDriver::PolicyDriver(GroupScheduler& policy, PipelineLayout layout, DriverOptions options)
    : policy_(policy),
      layout_(layout),
      options_(options),
      rng_(options.seed),
      replicas_(layout.replica_count()),
      pipelines_(layout.pipelines),
      alive_count_(layout.pipelines) {
  const auto slow_count = static_cast<uint32_t>(options_.slow_share * layout.pipelines + 0.5);
  for (uint32_t c = 0; c < slow_count; ++c) pipelines_[c].slowness = kSlowFactor;
  for (Replica& replica : replicas_) replica.value = rng_.uniform();
  for (uint32_t r = 0; r < replicas_.size(); ++r) go_on({r});
}

bool PolicyDriver::run() {
  for (uint64_t e = 0; e < options_.events; ++e) {
    if (is_stuck()) {
      ADD_FAILURE() << "nothing goes on at " << now_us_ << " us, seed " << options_.seed;
      return false;
    }
    const Event event = events_.top();
    events_.pop();
    now_us_ = std::max(now_us_, event.at_us);
    handle(event);
    churn();
    if (rng_.uniform() < options_.stale_rate) send_something_stale();
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "in event " << e << " at " << now_us_ << " us, seed " << options_.seed;
      return false;
    }
  }
  return true;
}

/// Timers that are not wished any more do not count.
bool PolicyDriver::is_stuck() const {
  if (events_.empty()) return true;
  if (!open_groups_.empty() || wake_us_) return false;
  for (const Replica& replica : replicas_) {
    if (replica.computes || replica.resumes) return false;
  }
  return true;
}

void PolicyDriver::push(uint64_t at_us, Kind kind, uint64_t subject, uint64_t life) {
  events_.push({at_us, sequence_++, kind, subject, life});
}

void PolicyDriver::handle(const Event& event) {
  if (event.kind == Kind::kTimer) {
    if (event.subject != wish_count_ || !wake_us_) return;
    wake_us_.reset();
    return apply(policy_.on_timer(now_us_));
  }
  if (event.kind == Kind::kGroupEnd) return end_group(event.subject);
  const ReplicaId replica{static_cast<uint32_t>(event.subject)};
  if (pipelines_[layout_.pipeline_of(replica)].life != event.life) return;
  if (event.kind == Kind::kFinish) return finish(replica);
  resume(replica);
}

uint64_t PolicyDriver::step_time(uint32_t pipeline) {
  double time = static_cast<double>(options_.step_us) * pipelines_[pipeline].slowness;
  time *= 0.5 + rng_.uniform();
  if (rng_.uniform() < options_.stall_rate) time *= kStallFactor;
  return 1 + static_cast<uint64_t>(time);
}

void PolicyDriver::compute(ReplicaId replica, uint64_t delay_us) {
  replicas_[replica.value].computes = true;
  push(now_us_ + delay_us, Kind::kFinish, replica.value,
       pipelines_[layout_.pipeline_of(replica)].life);
}

/// The replica is free for its next step.
void PolicyDriver::go_on(ReplicaId replica) {
  const uint32_t pipeline = layout_.pipeline_of(replica);
  if (!options_.coupled) return compute(replica, step_time(pipeline));
  Pipeline& own = pipelines_[pipeline];
  if (own.busy_stages == 0) own.busy_stages = layout_.stages;
  if (--own.busy_stages > 0) return;
  uint64_t delay_us = step_time(pipeline);
  for (uint32_t stage = layout_.stages; stage-- > 0;) {
    compute(layout_.replica(stage, pipeline), delay_us);
    delay_us += 1 + rng_.below(options_.step_us);
  }
  own.busy_stages = layout_.stages;
}

void PolicyDriver::finish(ReplicaId id) {
  Replica& replica = replicas_[id.value];
  replica.computes = false;
  replica.waits = true;
  replica.ready_us = now_us_;
  ++replica.steps;
  if (options_.learns) replica.value += rng_.uniform() - 0.5;
  apply(policy_.on_ready({id, replica.next_step++}, now_us_));
}

void PolicyDriver::resume(ReplicaId replica) {
  replicas_[replica.value].resumes = false;
  go_on(replica);
}

void PolicyDriver::end_group(uint64_t number) {
  auto group = open_groups_.find(number);
  if (group == open_groups_.end()) return;  // All members have died.
  for (const ReplicaId member : group->second) replicas_[member.value].group.reset();
  open_groups_.erase(group);
  const bool ok = broken_groups_.erase(number) == 0;
  apply(policy_.on_group_end({number, ok}, now_us_));
}

void PolicyDriver::apply(const GroupDecisions& decisions) {
  for (const GroupStart& start : decisions.starts) begin(start);
  if (decisions.wake_us != wake_us_) {
    wake_us_ = decisions.wake_us;
    ++wish_count_;
    if (wake_us_) push(std::max(*wake_us_, now_us_), Kind::kTimer, wish_count_, 0);
  }
  if (wake_us_ && options_.wake_us_max > 0) {
    EXPECT_LE(*wake_us_, now_us_ + options_.wake_us_max);
  }
}

void PolicyDriver::check_members(const GroupStart& start) {
  if (last_number_) {
    EXPECT_GT(start.number, *last_number_);
  }
  last_number_ = start.number;
  ASSERT_FALSE(start.members.empty());
  for (size_t m = 0; m < start.members.size(); ++m) {
    const GroupMember& member = start.members[m];
    ASSERT_TRUE(layout_.has(member.replica)) << member.replica;
    if (m > 0) {
      EXPECT_LT(start.members[m - 1].replica, member.replica);
    }
    EXPECT_EQ(layout_.stage_of(member.replica), static_cast<uint32_t>(start.stage));
    EXPECT_TRUE(pipelines_[layout_.pipeline_of(member.replica)].alive) << member.replica;
    const Replica& replica = replicas_[member.replica.value];
    const bool may_go_on = options_.interrupts && start.average == Average::kLocal;
    EXPECT_TRUE(may_go_on || !replica.group) << member.replica << " is in group " << *replica.group;
    EXPECT_TRUE(replica.waits || options_.interrupts) << member.replica << " is not ready";
    if (replica.waits) {
      EXPECT_EQ(member.step + 1, replica.next_step) << member.replica;
    }
    EXPECT_GT(member.weight, 0);
  }
}

/// Applies the group to real values, and sees that it is an average.
void PolicyDriver::average(const GroupStart& start) {
  EXPECT_GE(start.members.size(), 2u);
  double sum_before = 0, weight = 0, average = 0;
  for (const GroupMember& member : start.members) {
    const double value = replicas_[member.replica.value].value;
    sum_before += value;
    weight += member.weight;
    average += member.weight * value;
  }
  EXPECT_NEAR(weight, 1, kTolerance);
  const auto count = static_cast<double>(start.members.size());
  if (options_.equal_weights) {
    EXPECT_NEAR(average * count, sum_before, kTolerance * count);
  }
  for (const GroupMember& member : start.members) {
    if (options_.equal_weights) {
      EXPECT_NEAR(member.weight, 1 / count, kTolerance);
    }
    replicas_[member.replica.value].value = average;
  }
}

void PolicyDriver::begin(const GroupStart& start) {
  check_members(start);
  if (testing::Test::HasFailure()) return;
  ++start_count_;
  if (start.average == Average::kAverageWeights) average(start);
  const bool is_local = start.average == Average::kLocal;
  if (is_local) {
    EXPECT_EQ(start.members.size(), 1u);
    EXPECT_NEAR(start.members[0].weight, 1, kTolerance);
  }
  for (const GroupMember& member : start.members) {
    Replica& replica = replicas_[member.replica.value];
    if (!is_local) {
      replica.group = start.number;
      open_groups_[start.number].push_back(member.replica);
    }
    if (!replica.waits) continue;  // Interrupted: it computes on.
    replica.waits = false;
    replica.resumes = true;
    wait_us_longest_ = std::max(wait_us_longest_, now_us_ - replica.ready_us);
    const uint64_t through_us = is_local ? 0 : rng_.below(options_.group_us);
    push(now_us_ + through_us, Kind::kResume, member.replica.value,
         pipelines_[layout_.pipeline_of(member.replica)].life);
  }
  if (!is_local) push(now_us_ + options_.group_us, Kind::kGroupEnd, start.number, 0);
  if (options_.wait_us_max > 0) {
    EXPECT_LE(wait_us_longest_, options_.wait_us_max);
  }
  if (on_start) on_start(start);
}

void PolicyDriver::churn() {
  if (rng_.uniform() >= options_.death_rate) return;
  const auto pipeline = static_cast<uint32_t>(rng_.below(layout_.pipelines));
  if (pipelines_[pipeline].alive) {
    if (alive_count_ > options_.pipelines_min) kill(pipeline);
  } else {
    revive(pipeline);
  }
}

void PolicyDriver::kill(uint32_t pipeline) {
  pipelines_[pipeline].alive = false;
  ++pipelines_[pipeline].life;
  --alive_count_;
  ++change_count_;
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    const ReplicaId id = layout_.replica(stage, pipeline);
    Replica& replica = replicas_[id.value];
    if (replica.group) {
      auto group = open_groups_.find(*replica.group);
      std::erase(group->second, id);
      broken_groups_[group->first] = true;
      if (group->second.empty()) {
        broken_groups_.erase(group->first);
        open_groups_.erase(group);
      }
    }
    replica.group.reset();
    replica.computes = replica.waits = replica.resumes = false;
  }
  apply(policy_.on_membership({pipeline, false, 0}, now_us_));
  if (on_change) on_change(pipeline, false);
}

void PolicyDriver::revive(uint32_t pipeline) {
  std::vector<uint32_t> living;
  for (uint32_t c = 0; c < layout_.pipelines; ++c) {
    if (pipelines_[c].alive) living.push_back(c);
  }
  const uint32_t source = living[rng_.below(living.size())];
  const uint64_t step = replicas_[source].next_step;
  Pipeline& own = pipelines_[pipeline];
  own.alive = true;
  own.busy_stages = 0;
  own.slowness = rng_.uniform() < options_.slow_share ? kSlowFactor : 1;
  ++alive_count_;
  ++change_count_;
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    Replica& replica = replicas_[layout_.replica(stage, pipeline).value];
    replica = Replica{};
    replica.next_step = step;
    replica.value = replicas_[layout_.replica(stage, source).value].value;
  }
  apply(policy_.on_membership({pipeline, true, step}, now_us_));
  if (on_change) on_change(pipeline, true);
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) go_on(layout_.replica(stage, pipeline));
}

void PolicyDriver::send_something_stale() {
  const ReplicaId id{static_cast<uint32_t>(rng_.below(replicas_.size()))};
  const uint32_t pipeline = layout_.pipeline_of(id);
  const uint64_t next_step = replicas_[id.value].next_step;
  GroupDecisions decisions;
  switch (rng_.below(5)) {
    case 0:  // A repeat or older; of the dead, anything.
      if (pipelines_[pipeline].alive && next_step == 0) return;
      decisions = policy_.on_ready(
          {id, pipelines_[pipeline].alive ? rng_.below(next_step) : next_step}, now_us_);
      break;
    case 1:
      decisions = policy_.on_ready({{layout_.replica_count() + id.value}, next_step}, now_us_);
      break;
    case 2: {
      const uint64_t number = rng_.below(last_number_.value_or(0) + 10);
      if (open_groups_.count(number) > 0) return;
      decisions = policy_.on_group_end({number, rng_.below(2) == 0}, now_us_);
      break;
    }
    case 3:  // What it is already.
      decisions = policy_.on_membership({pipeline, pipelines_[pipeline].alive, 0}, now_us_);
      break;
    default:
      if (wake_us_ && *wake_us_ <= now_us_) return;
      decisions = policy_.on_timer(now_us_);
  }
  EXPECT_TRUE(decisions.starts.empty()) << "something stale started a group";
  EXPECT_EQ(decisions.wake_us, wake_us_);
}

double PolicyDriver::spread(uint32_t stage) const {
  double least = HUGE_VAL, most = -HUGE_VAL;
  for (uint32_t c = 0; c < layout_.pipelines; ++c) {
    if (!pipelines_[c].alive) continue;
    const double value = replicas_[layout_.replica(stage, c).value].value;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  return most - least;
}

double PolicyDriver::mean(uint32_t stage) const {
  double sum = 0;
  for (uint32_t c = 0; c < layout_.pipelines; ++c) {
    if (pipelines_[c].alive) sum += replicas_[layout_.replica(stage, c).value].value;
  }
  return sum / alive_count_;
}

}  // namespace skein::plans
