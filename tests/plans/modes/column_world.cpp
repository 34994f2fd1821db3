#include "tests/plans/modes/column_world.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "plans/plan/column_plan.hpp"

namespace skein::plans {
namespace {

constexpr uint64_t kTickUs = 200;
constexpr uint64_t kEventsMax = 200'000;

std::vector<WorkerId> workers(int64_t count) {
  std::vector<WorkerId> all;
  for (uint32_t id = 1; id <= count; ++id) all.push_back(WorkerId{id});
  return all;
}

ProgramOptions program_options(const Plan& plan, uint32_t stage) {
  ProgramOptions options;
  options.actions = plan.actions.at(static_cast<size_t>(plan.stages[stage].rank));
  options.stages = {{.stage = static_cast<int32_t>(stage),
                     .is_first = stage == 0,
                     .is_last = stage + 1 == plan.stages.size()}};
  options.samples_per_step = 1;
  return options;
}

}  // namespace

JobSpec column_job(int64_t stages, int64_t columns, const std::string& policy) {
  JobSpec job;
  job.model.layers = 4;
  job.model.tied_head = false;
  job.training.steps = 1000;
  job.training.micro_batch_size = columns;
  job.training.global_batch_size = 2 * columns;
  job.parallelism.pipeline_parallel_degree = stages;
  job.parallelism.data_parallel_replicate_degree = columns;
  job.validation.batches = 0;
  job.checkpoint.enable = false;
  job.profiling.enable_profiling = false;
  job.sync.policy = policy;
  job.sync.group_size = 2;
  job.sync.period = 3;
  return job;
}

ColumnWorld::ColumnWorld(JobSpec job, Options options)
    : job_(std::move(job)),
      options_(options),
      rng_(options.seed),
      plan_(make_column_plan(job_,
                             workers(job_.parallelism.pipeline_parallel_degree *
                                     job_.parallelism.data_parallel_replicate_degree),
                             1)
                .value()),
      layout_(column_layout(plan_)),
      loop_(job_, plan_),
      policy_(make_policy(job_, layout_)),
      served_(layout_.stages),
      segments_left_(options.segments),
      kills_left_(options.kills) {
  for (uint32_t column = 0; column < layout_.columns; ++column) {
    slowness_.push_back(1 + (rng_.below(3) == 0 ? rng_.below(9) : 0));
  }
  for (uint32_t id = 0; id < layout_.replica_count(); ++id) {
    ranks_.emplace_back(program_options(plan_, layout_.stage_of({id})));
    carry_out(id, ranks_.back().program.on_start());
  }
}

uint64_t ColumnWorld::dropped_by_programs() const {
  uint64_t dropped = 0;
  for (const Rank& rank : ranks_) dropped += rank.program.dropped();
  return dropped;
}

void ColumnWorld::run() {
  begin_segment();
  for (uint64_t event = 0; segments_left_ > 0 && !loop_.has_failed(); ++event) {
    ASSERT_LT(event, kEventsMax) << "seed " << options_.seed << ": it never ends";
    std::vector<Event> events = possible();
    if (events.empty() && !wake_us_) {
      ASSERT_TRUE(is_anybody_slow()) << "seed " << options_.seed << ": nothing can happen";
      continue;
    }
    const bool kills = kills_left_ > 0 && rng_.below(options_.kill_after) == 0;
    now_us_ += rng_.below(kTickUs);
    if (kills) {
      kill();
    } else if (events.empty() || (wake_us_ && now_us_ >= *wake_us_)) {
      now_us_ = std::max(now_us_, *std::exchange(wake_us_, std::nullopt));
      const GroupDecisions decisions = policy_->on_timer(now_us_);
      wake_us_ = decisions.wake_us;
      from_policy_.insert(from_policy_.end(), decisions.starts.begin(), decisions.starts.end());
    } else {
      events[rng_.below(events.size())]();
    }
    if (options_.cut_share > 0 && rng_.uniform() < options_.cut_share) loop_.cut_short();
    if (testing::Test::HasFatalFailure()) return;
  }
  const bool may_fail = takes_mean_ || lost_columns_.size() == layout_.columns;
  EXPECT_TRUE(may_fail || !loop_.has_failed()) << "seed " << options_.seed;
}

/// What may happen next.
std::vector<ColumnWorld::Event> ColumnWorld::possible() {
  std::vector<Event> events;
  for (uint32_t id = 0; id < ranks_.size(); ++id) add_rank_events(id, events);
  if (!to_policy_.empty()) events.push_back([this] { tell_policy(); });
  if (!from_policy_.empty()) {
    events.push_back([this] {
      const GroupStart start = from_policy_.front();
      from_policy_.pop_front();
      apply(loop_.on_group_start(start));
    });
  }
  return events;
}

void ColumnWorld::add_rank_events(uint32_t id, std::vector<Event>& events) {
  Rank& rank = ranks_[id];
  if (!rank.out.empty() && !rank.is_known_dead) {
    events.push_back([this, id, &rank] {
      const FromRank message = rank.out.front();
      rank.out.pop_front();
      hear(id, message);
    });
  }
  if (rank.is_dead) {
    if (!rank.is_known_dead) {
      events.push_back([this, id, &rank] {
        rank.is_known_dead = true;
        const uint32_t column = layout_.column_of({id});
        lost_columns_.insert(column);
        leases_.erase(column);
        apply(loop_.lose(replica_of(plan_, {id}).worker));
      });
    }
    return;
  }
  if (!rank.in.empty()) {
    events.push_back([this, id, &rank] {
      const ToRank message = rank.in.front();
      rank.in.pop_front();
      deliver(id, message);
    });
  }
  if (!rank.inputs.empty()) {
    events.push_back([this, id, &rank] {
      const InputKey key = rank.inputs.front();
      rank.inputs.pop_front();
      carry_out(id, rank.program.on_input(key));
    });
  }
  if (!rank.repeats.empty() && rng_.below(4) == 0) {
    events.push_back([this, id, &rank] {
      const ToRank message = rank.repeats[rng_.below(rank.repeats.size())];
      deliver(id, message);
    });
  }
  const bool is_slow = rng_.below(slowness_[layout_.column_of({id})]) > 0;
  if (!rank.device.empty() && !is_slow) events.push_back([this, id] { end_work(id); });
  if (can_end_exchange(rank)) events.push_back([this, id] { end_exchange(id, true); });
}

/// Work that did not happen this time, only because it is slow.
bool ColumnWorld::is_anybody_slow() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return !rank.is_dead && !rank.device.empty(); });
}

void ColumnWorld::kill() {
  const auto id = static_cast<uint32_t>(rng_.below(ranks_.size()));
  if (!ranks_[id].is_dead) --kills_left_;
  ranks_[id].is_dead = true;
}

void ColumnWorld::apply(const CoordinatorDecisions& decisions) {
  for (const CoordinatorDecision& decision : decisions) {
    if (const auto* lease = std::get_if<LeaseSamples>(&decision)) take(*lease);
    if (const auto* commit = std::get_if<CommitColumn>(&decision)) take(*commit);
    if (const auto* combine = std::get_if<CombineWeights>(&decision)) take(*combine);
    if (const auto* dissolve = std::get_if<DissolveGroup>(&decision)) take(*dissolve);
    if (const auto* tell = std::get_if<TellPolicy>(&decision)) to_policy_.push_back(*tell);
    EXPECT_FALSE(std::holds_alternative<EndRun>(decision));
  }
  if (loop_.take_end()) end_segment();
}

void ColumnWorld::take(const LeaseSamples& decision) {
  EXPECT_TRUE(is_live(decision.column)) << "seed " << options_.seed;
  EXPECT_TRUE(leases_.emplace(decision.column, decision.lease).second)
      << "seed " << options_.seed << ": column " << decision.column << " has a lease";
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    send(layout_.replica(stage, decision.column), Lease{decision.step, decision.lease});
  }
}

void ColumnWorld::take(const CommitColumn& decision) {
  const auto held = leases_.find(decision.column);
  ASSERT_TRUE(held != leases_.end() && held->second == decision.lease) << options_.seed;
  const auto [known, is_first] =
      done_.emplace(decision.lease.first, Done{decision.column, decision.lease.count});
  if (!is_first) {
    ++redone_;
    EXPECT_FALSE(is_live(known->second.column))
        << "seed " << options_.seed << ": samples from " << decision.lease.first << " twice";
    known->second = {decision.column, decision.lease.count};
  }
  leases_.erase(held);
  if (decision.next) leases_[decision.column] = *decision.next;
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    send(layout_.replica(stage, decision.column), decision);
  }
}

void ColumnWorld::take(const CombineWeights& decision) {
  if (decision.is_common) {
    check_mean_is_due();
    takes_mean_ = true;
  }
  if (decision.members.size() > 1) groups_of_several_ += decision.is_closing ? 0 : 1;
  if (!decision.shards.empty()) ++pushes_;
  double weight = 0;
  for (const GroupMember& member : decision.members) {
    weight += member.weight;
    if (member.is_passive) ++passive_;
    EXPECT_EQ(layout_.stage_of(member.replica), static_cast<uint32_t>(decision.stage));
    send(member.replica, decision);
  }
  EXPECT_TRUE(decision.members.size() == 1 || !decision.shards.empty() ||
              std::abs(weight - 1) < 1e-9)
      << weight;
  for (ReplicaId shard : decision.shards) {
    EXPECT_TRUE(is_live(layout_.column_of(shard))) << "seed " << options_.seed;
  }
  EXPECT_TRUE(groups_.emplace(decision.number, Group{decision, {}}).second) << decision.number;
}

void ColumnWorld::take(const DissolveGroup& decision) {
  ++dissolved_;
  for (ReplicaId member : decision.members) send(member, decision);
}

void ColumnWorld::send(ReplicaId replica, const ToRank& message) {
  Rank& rank = ranks_[replica.value];
  if (rank.is_known_dead) return;
  rank.in.push_back(message);
  if (rng_.uniform() >= options_.repeat_share) return;
  rank.in.push_back(message);
  rank.repeats.push_back(message);
}

void ColumnWorld::deliver(uint32_t id, const ToRank& message) {
  Rank& rank = ranks_[id];
  if (const auto* lease = std::get_if<Lease>(&message)) {
    rank.leases[lease->step] = lease->lease;
    return carry_out(id, rank.program.on_claim({lease->step, lease->lease}));
  }
  if (const auto* commit = std::get_if<CommitColumn>(&message)) {
    if (commit->next) rank.leases[commit->step + 1] = *commit->next;
    return carry_out(id, rank.program.on_update({commit->step, 1, commit->next}));
  }
  if (const auto* order = std::get_if<CommitOrder>(&message)) {
    return carry_out(id, rank.program.on_commit(*order));
  }
  if (const auto* combine = std::get_if<CombineWeights>(&message)) {
    return deliver_combine(rank, {id}, *combine);
  }
  deliver_dissolve(rank, {id}, std::get<DissolveGroup>(message));
}

void ColumnWorld::deliver_combine(Rank& rank, ReplicaId id, const CombineWeights& combine) {
  const auto own = std::find_if(combine.members.begin(), combine.members.end(),
                                [&](const GroupMember& each) { return each.replica == id; });
  if (own->is_passive) {  // It is not the program's; the actor drops repeats.
    if (combine.number <= rank.newest) return;
    rank.newest = combine.number;
    return begin_exchange(id.value, combine.number, true);
  }
  rank.newest = std::max(rank.newest, combine.number);
  AverageOrder order;
  order.stage = combine.stage;
  order.number = combine.number;
  order.is_closing = combine.is_closing;
  order.is_global = combine.is_common;
  order.is_alone = combine.members.size() == 1 && !combine.is_common && combine.shards.empty();
  order.steps_done = combine.steps_done;
  carry_out(id.value, rank.program.on_average(order));
}

void ColumnWorld::deliver_dissolve(Rank& rank, ReplicaId id, const DissolveGroup& dissolve) {
  if (rank.exchange && rank.exchange->number == dissolve.number) {
    return end_exchange(id.value, false);
  }
  rank.dissolved.insert(dissolve.number);
}

void ColumnWorld::hear(uint32_t id, const FromRank& message) {
  if (const auto* ready = std::get_if<ReadyReport>(&message)) return apply(loop_.on_ready(*ready));
  const auto& combined = std::get<Combined>(message);
  apply(loop_.on_combined({id}, combined.number, combined.ok));
}

void ColumnWorld::carry_out(uint32_t id, const ProgramCommands& commands) {
  Rank& rank = ranks_[id];
  for (const ProgramCommand& command : commands) {
    if (const auto* ready = std::get_if<SendReady>(&command)) {
      ReadyReport report;
      report.replica = {id};
      report.step = ready->step;
      report.norm_squared = 1;
      report.busy_us = slowness_[layout_.column_of({id})] * (50 + rng_.below(100));
      report.loss_sum = report.loss_tokens = ready->stage + 1 == int64_t{layout_.stages} ? 1 : 0;
      rank.out.emplace_back(report);
    } else if (const auto* run = std::get_if<RunAverage>(&command)) {
      begin_exchange(id, run->number, false);
    } else if (!std::holds_alternative<BeginRound>(command)) {
      rank.device.push_back(command);
    }
  }
}

void ColumnWorld::end_work(uint32_t id) {
  Rank& rank = ranks_[id];
  const ProgramCommand work = rank.device.front();
  rank.device.pop_front();
  if (const auto* run = std::get_if<RunAction>(&work)) {
    const bool is_forward = run->action.type == ActionType::kForward;
    const int32_t to = run->action.stage + (is_forward ? 1 : -1);
    if (to >= 0 && to < static_cast<int32_t>(layout_.stages)) {
      const ReplicaId next = layout_.replica(static_cast<uint32_t>(to), layout_.column_of({id}));
      ranks_[next.value].inputs.push_back(
          {is_forward ? InputKind::kActivation : InputKind::kGradient, run->step, to,
           run->action.microbatch});
    }
  } else if (std::holds_alternative<RunUpdate>(work)) {
    rank.carried.insert(rank.leases.at(rank.updates++).first);
    rank.carried.merge(rank.pending);
    rank.pending.clear();
    rank.weight += rng_.uniform();
  }
  carry_out(id, rank.program.on_work_done());
}

void ColumnWorld::begin_exchange(uint32_t id, uint64_t number, bool is_passive) {
  Rank& rank = ranks_[id];
  ASSERT_FALSE(rank.exchange) << "seed " << options_.seed << ": group " << number << " begins in "
                              << rank.exchange->number;
  rank.exchange = Exchange{number, is_passive};
  Group& group = groups_.at(number);
  group.put_in[{id}] = rank.weight;
  group.carried.insert(rank.carried.begin(), rank.carried.end());
  group.carried.insert(rank.pending.begin(), rank.pending.end());
  if (!group.order.shards.empty()) {
    const std::set<uint64_t>& served = served_[static_cast<size_t>(group.order.stage)];
    group.carried.insert(served.begin(), served.end());
  }
  if (rank.dissolved.erase(number) > 0) return end_exchange(id, false);
  const CombineWeights& order = group.order;
  if (order.members.size() == 1 && order.shards.empty()) end_exchange(id, true);
}

/// Once all have put in what they have, which dead ones may have done too; and a server needs all
/// of its shards.
bool ColumnWorld::can_end_exchange(const Rank& rank) const {
  if (!rank.exchange) return false;
  const Group& group = groups_.at(rank.exchange->number);
  const std::vector<ReplicaId>& shards = group.order.shards;
  const bool has_shards = std::none_of(shards.begin(), shards.end(),
                                       [this](ReplicaId id) { return ranks_[id.value].is_dead; });
  return has_shards && group.put_in.size() == group.order.members.size();
}

void ColumnWorld::end_exchange(uint32_t id, bool ok) {
  Rank& rank = ranks_[id];
  const Exchange ended = *std::exchange(rank.exchange, std::nullopt);
  Group& group = groups_.at(ended.number);
  if (ok && !ended.is_passive && group.order.shards.empty()) {
    rank.weight = 0;
    for (const GroupMember& member : group.order.members) {
      rank.weight += member.weight * group.put_in.at(member.replica);
    }
  }
  if (ok) {
    std::set<uint64_t>& to = ended.is_passive ? rank.pending : rank.carried;
    to.insert(group.carried.begin(), group.carried.end());
    const bool is_served = !group.order.shards.empty();
    if (is_served && ++group.through == group.order.members.size()) {
      served_[static_cast<size_t>(group.order.stage)].merge(std::set(group.carried));
    }
  }
  rank.out.emplace_back(Combined{ended.number, ok});
  if (ended.is_passive) return;
  carry_out(id, rank.program.on_averaged(group.order.stage, ended.number, ok));
}

void ColumnWorld::tell_policy() {
  const TellPolicy tell = to_policy_.front();
  to_policy_.pop_front();
  GroupDecisions decisions;
  if (const auto* ready = std::get_if<ReadySignal>(&tell.what)) {
    decisions = policy_->on_ready(*ready, now_us_);
  } else if (const auto* outcome = std::get_if<GroupOutcome>(&tell.what)) {
    decisions = policy_->on_group_end(*outcome, now_us_);
  } else {
    decisions = policy_->on_membership(std::get<MembershipChange>(tell.what), now_us_);
  }
  wake_us_ = decisions.wake_us;
  from_policy_.insert(from_policy_.end(), decisions.starts.begin(), decisions.starts.end());
}

void ColumnWorld::begin_segment() {
  done_.clear();
  for (std::set<uint64_t>& each : served_) each.clear();
  for (Rank& rank : ranks_) {
    rank.carried.clear();
    rank.pending.clear();
  }
  apply(loop_.begin_segment(first_step_, first_step_ + options_.segment_steps));
}

/// All live columns have the mean: as the coordinator, commit and begin the next one.
void ColumnWorld::end_segment() {
  check_segment();
  takes_mean_ = false;
  CommitOrder order;
  order.step = loop_.end_step() - 1;
  for (uint32_t id = 0; id < ranks_.size(); ++id) {
    if (is_live(layout_.column_of({id}))) send({id}, order);
  }
  first_step_ = loop_.end_step();
  if (--segments_left_ > 0) begin_segment();
}

void ColumnWorld::check_mean_is_due() const {
  EXPECT_TRUE(leases_.empty()) << "seed " << options_.seed << ": somebody has samples";
  for (uint32_t id = 0; id < ranks_.size(); ++id) {
    const bool counts = is_live(layout_.column_of({id})) && !ranks_[id].is_dead;
    EXPECT_FALSE(counts && ranks_[id].exchange) << "seed " << options_.seed << ": replica " << id;
  }
}

void ColumnWorld::check_segment() {
  const auto batch = static_cast<uint64_t>(job_.training.global_batch_size);
  uint64_t next = first_step_ * batch;
  for (const auto& [first, done] : done_) {
    EXPECT_EQ(first, next) << "seed " << options_.seed;
    next = first + done.count;
  }
  EXPECT_EQ(next, loop_.end_step() * batch) << "seed " << options_.seed;
  uint64_t counted = 0;
  for (uint64_t samples : loop_.totals().samples) counted += samples;
  EXPECT_EQ(counted, next - first_step_ * batch);
  EXPECT_EQ(loop_.totals().iterations, done_.size());
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    std::set<double> weights;
    for (uint32_t column = 0; column < layout_.columns; ++column) {
      const Rank& rank = ranks_[layout_.replica(stage, column).value];
      if (!is_live(column) || rank.is_dead) continue;
      weights.insert(rank.weight);
      EXPECT_TRUE(rank.program->has_common_state()) << "seed " << options_.seed;
      EXPECT_EQ(rank.program->steps_done(), loop_.end_step()) << "seed " << options_.seed;
      check_carried(stage, rank);
    }
    EXPECT_LE(weights.size(), 1u) << "seed " << options_.seed << ": columns are not alike";
  }
}

/// No update of the segment is lost, at no stage, whoever died.
void ColumnWorld::check_carried(uint32_t stage, const Rank& rank) const {
  for (const auto& [first, done] : done_) {
    EXPECT_TRUE(rank.carried.contains(first))
        << "seed " << options_.seed << ": stage " << stage << " lacks the samples from " << first
        << " of column " << done.column;
  }
}

}  // namespace skein::plans
