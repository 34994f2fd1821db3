#include "tests/plans/modes/pipeline_world.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/modes/mode_list.hpp"
#include "plans/plan/pipeline_cuts.hpp"
#include "plans/plan/pipeline_plan.hpp"

namespace skein::plans {
namespace {

constexpr uint64_t kTickUs = 200;
constexpr uint64_t kEventsMax = 200'000;

std::vector<WorkerId> workers(int64_t count) {
  std::vector<WorkerId> all;
  for (uint32_t id = 1; id <= count; ++id) all.push_back(WorkerId{id});
  return all;
}

Plan make_plan(const JobSpec& job, const std::vector<int64_t>& rows) {
  const int64_t count =
      job.parallelism.pipeline_parallel_degree * job.parallelism.data_parallel_replicate_degree;
  const Plan plan = make_pipeline_plan(job, workers(count), 1).value();
  if (rows.empty()) return plan;
  std::vector<PipelineCuts> pipelines = cuts_of(plan);
  for (size_t n = 0; n < pipelines.size(); ++n) pipelines[n].rows = rows[n];
  return make_plan_of_cuts(job, pipelines, 1).value();
}

std::unique_ptr<WorkerProgram> make_program(const JobSpec& job, const Plan& plan, uint32_t stage,
                                            int32_t buckets) {
  ProgramOptions options;
  options.actions = plan.actions.at(static_cast<size_t>(plan.stages[stage].rank()));
  options.stages = {{.stage = static_cast<int32_t>(stage),
                     .is_first = stage == 0,
                     .is_last = stage + 1 == plan.stages.size(),
                     .bucket_count = buckets}};
  options.samples_per_step = 1;
  options.stage_count = static_cast<int32_t>(plan.stages.size());
  options.passes_in_flight = static_cast<int32_t>(job.sync.claims_in_flight);
  return find_mode(training_modes(), kLocalMode).make_program(std::move(options));
}

}  // namespace

JobSpec pipeline_job(int64_t stages, int64_t pipelines, const std::string& policy) {
  JobSpec job;
  job.model.layers = 4;
  job.model.tied_head = false;
  job.training.steps = 1000;
  job.training.micro_batch_size = pipelines;
  job.training.global_batch_size = 2 * pipelines;
  job.parallelism.pipeline_parallel_degree = stages;
  job.parallelism.data_parallel_replicate_degree = pipelines;
  job.validation.batches = 0;
  job.checkpoint.enable = false;
  job.profiling.enable_profiling = false;
  job.sync.policy = policy;
  job.sync.group_size = 2;
  job.sync.period = 3;
  return job;
}

PipelineWorld::PipelineWorld(JobSpec job, Options options)
    : job_(std::move(job)),
      options_(options),
      rng_(options.seed),
      plan_(make_plan(job_, options_.rows)),
      layout_(pipeline_layout(plan_)),
      loop_(job_, plan_, make_policy(job_, layout_)),
      served_(layout_.stages),
      rounds_left_(options.rounds),
      kills_left_(options.kills) {
  for (uint32_t pipeline = 0; pipeline < layout_.pipelines; ++pipeline) {
    slowness_.push_back(1 + (rng_.below(3) == 0 ? rng_.below(9) : 0));
  }
  for (uint32_t id = 0; id < layout_.replica_count(); ++id) {
    const auto buckets = 1 + static_cast<int32_t>(options_.seed % 3);
    ranks_.emplace_back(make_program(job_, plan_, layout_.stage_of({id}), buckets));
    carry_out(id, ranks_.back().program.on_start());
  }
}

uint64_t PipelineWorld::dropped_by_programs() const {
  uint64_t dropped = 0;
  for (const Rank& rank : ranks_) dropped += rank.program.dropped();
  return dropped;
}

void PipelineWorld::run() {
  begin_round();
  for (uint64_t event = 0; rounds_left_ > 0 && !has_failed_; ++event) {
    ASSERT_LT(event, kEventsMax) << "seed " << options_.seed << ": it never ends";
    std::vector<Event> events = possible();
    const std::optional<uint64_t> wake_us = loop_.wake_us();
    if (events.empty() && !wake_us) {
      ASSERT_TRUE(is_anybody_slow())
          << "seed " << options_.seed << ": nothing can happen" << activities();
      continue;
    }
    const bool kills = kills_left_ > 0 && rng_.below(options_.kill_after) == 0;
    now_us_ += rng_.below(kTickUs);
    if (kills) {
      kill();
    } else if (events.empty() || (wake_us && now_us_ >= *wake_us)) {
      now_us_ = std::max(now_us_, *wake_us);
      apply(loop_.on_timer(now_us_));
    } else {
      events[rng_.below(events.size())]();
    }
    if (options_.cut_share > 0 && rng_.uniform() < options_.cut_share) loop_.cut_short();
    loop_.check_invariants();
    if (testing::Test::HasFatalFailure()) return;
  }
  const bool may_fail = takes_mean_ || lost_pipelines_.size() == layout_.pipelines;
  EXPECT_TRUE(may_fail || !has_failed_) << "seed " << options_.seed;
}

/// What everybody waits for, for people.
std::string PipelineWorld::activities() const {
  std::string all;
  for (uint32_t id = 0; id < ranks_.size(); ++id) {
    const Rank& rank = ranks_[id];
    absl::StrAppend(&all, "\nreplica ", id, rank.is_dead ? ", dead," : "", " of pipeline replica ",
                    layout_.pipeline_of({id}), " waits for ", rank.program->activity(), " after ",
                    rank.updates, " updates");
  }
  for (const auto& [pipeline, held] : claims_) {
    absl::StrAppend(&all, "\npipeline replica ", pipeline, " has ", held.size(), " claims");
  }
  return all;
}

/// What may happen next.
std::vector<PipelineWorld::Event> PipelineWorld::possible() {
  std::vector<Event> events;
  for (uint32_t id = 0; id < ranks_.size(); ++id) add_rank_events(id, events);
  return events;
}

void PipelineWorld::add_rank_events(uint32_t id, std::vector<Event>& events) {
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
        const uint32_t pipeline = layout_.pipeline_of({id});
        lost_pipelines_.insert(pipeline);
        claims_.erase(pipeline);
        apply(loop_.lose(replica_of(plan_, {id}).worker, now_us_));
      });
    }
    return;
  }
  if (!rank.in.empty()) {
    events.push_back([this, id, &rank] {
      const ToRank message = rank.in.front();
      rank.in.pop_front();
      // Never before it has come once: a link keeps the order.
      if (rng_.uniform() < options_.repeat_share) rank.repeats.push_back(message);
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
  const bool is_slow = rng_.below(slowness_[layout_.pipeline_of({id})]) > 0;
  if (!rank.device.empty() && !is_slow) events.push_back([this, id] { end_work(id); });
  if (can_end_exchange(rank)) events.push_back([this, id] { end_exchange(id, true); });
}

/// Work that did not happen this time, only because it is slow.
bool PipelineWorld::is_anybody_slow() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return !rank.is_dead && !rank.device.empty(); });
}

void PipelineWorld::kill() {
  const auto id = static_cast<uint32_t>(rng_.below(ranks_.size()));
  if (!ranks_[id].is_dead) --kills_left_;
  ranks_[id].is_dead = true;
}

void PipelineWorld::apply(ModeOutcome outcome) { apply(std::move(outcome).decisions()); }

void PipelineWorld::apply(ModeDecisions decisions) {
  for (const CoordinatorDecision& decision : decisions.orders) {
    if (const auto* claim = std::get_if<ClaimSamples>(&decision)) take(*claim);
    if (const auto* commit = std::get_if<CommitPipeline>(&decision)) take(*commit);
    if (const auto* average = std::get_if<AverageWeights>(&decision)) take(*average);
    if (const auto* abort = std::get_if<AbortGroup>(&decision)) take(*abort);
    EXPECT_FALSE(std::holds_alternative<EndRun>(decision));
  }
  has_failed_ = has_failed_ || decisions.failed.has_value();
  if (!decisions.completed) return;
  completed_ = decisions.completed;
  end_round();
}

void PipelineWorld::take(const ClaimSamples& decision) {
  EXPECT_TRUE(is_live(decision.pipeline)) << "seed " << options_.seed;
  claim(decision.pipeline, decision.step, decision.claim);
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    send(layout_.replica(stage, decision.pipeline), Claim{decision.step, decision.claim});
  }
}

void PipelineWorld::claim(uint32_t pipeline, uint64_t step, const SampleClaim& claim) {
  std::deque<Claimed>& own = claims_[pipeline];
  EXPECT_LT(own.size(), claims_max())
      << "seed " << options_.seed << ": pipeline replica " << pipeline;
  const ReplicaPlan& replica = plan_.stages.front().replicas[pipeline];
  EXPECT_LE(claim.count, static_cast<uint64_t>(replica.rows.count * plan_.microbatch_count))
      << "seed " << options_.seed;
  own.push_back({step, claim});
}

/// The pipeline replica has done its oldest claim.
void PipelineWorld::count_done(uint32_t pipeline) {
  const SampleClaim claim = claims_.at(pipeline).front().claim;
  claims_.at(pipeline).pop_front();
  const auto [known, is_first] = done_.emplace(claim.first, Done{pipeline, claim.count});
  if (is_first) return;
  ++redone_;
  EXPECT_FALSE(is_live(known->second.pipeline))
      << "seed " << options_.seed << ": samples from " << claim.first << " twice";
  known->second = {pipeline, claim.count};
}

void PipelineWorld::take(const CommitPipeline& decision) {
  EXPECT_EQ(claims_max(), 1u) << "stages apply their own updates";
  const std::deque<Claimed>& held = claims_[decision.pipeline];
  ASSERT_TRUE(!held.empty() && held.front().claim == decision.claim) << options_.seed;
  count_done(decision.pipeline);
  if (decision.next) claim(decision.pipeline, decision.step + 1, *decision.next);
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    send(layout_.replica(stage, decision.pipeline), decision);
  }
}

void PipelineWorld::take(const AverageWeights& decision) {
  if (decision.is_global) {
    check_mean_is_due();
    takes_mean_ = true;
  }
  if (decision.members.size() > 1) groups_of_several_ += decision.is_closing ? 0 : 1;
  if (!decision.shards.empty()) ++pushes_;
  double weight = 0;
  for (const GroupMember& member : decision.members) {
    weight += member.weight;
    if (member.is_nonblocking) ++nonblocking_;
    EXPECT_EQ(layout_.stage_of(member.replica), static_cast<uint32_t>(decision.stage));
    send(member.replica, decision);
  }
  EXPECT_TRUE(decision.members.size() == 1 || !decision.shards.empty() ||
              std::abs(weight - 1) < 1e-9)
      << weight;
  for (ReplicaId shard : decision.shards) {
    EXPECT_TRUE(is_live(layout_.pipeline_of(shard))) << "seed " << options_.seed;
  }
  EXPECT_TRUE(groups_.emplace(decision.number, Group{decision, {}}).second) << decision.number;
}

void PipelineWorld::take(const AbortGroup& decision) {
  ++aborted_;
  for (ReplicaId member : decision.members) send(member, decision);
}

void PipelineWorld::send(ReplicaId replica, const ToRank& message) {
  Rank& rank = ranks_[replica.value];
  if (rank.is_known_dead) return;
  rank.in.push_back(message);
  if (rng_.uniform() < options_.repeat_share) rank.in.push_back(message);
}

void PipelineWorld::deliver(uint32_t id, const ToRank& message) {
  Rank& rank = ranks_[id];
  if (const auto* claim = std::get_if<Claim>(&message)) {
    rank.claims[claim->step] = claim->claim;
    return carry_out(id, rank.program.on_claim({claim->step, claim->claim}));
  }
  if (const auto* commit = std::get_if<CommitPipeline>(&message)) {
    if (commit->next) rank.claims[commit->step + 1] = *commit->next;
    return carry_out(id, rank.program.on_update({commit->step, 1, commit->next}));
  }
  if (const auto* order = std::get_if<CommitOrder>(&message)) {
    return carry_out(id, rank.program.on_commit(*order));
  }
  if (const auto* average = std::get_if<AverageWeights>(&message)) {
    return deliver_average(rank, {id}, *average);
  }
  deliver_abort(rank, {id}, std::get<AbortGroup>(message));
}

void PipelineWorld::deliver_average(Rank& rank, ReplicaId id, const AverageWeights& average) {
  const auto own = std::find_if(average.members.begin(), average.members.end(),
                                [&](const GroupMember& each) { return each.replica == id; });
  if (own->is_nonblocking) {  // It is not the program's; the actor drops repeats.
    if (average.number <= rank.newest) return;
    rank.newest = average.number;
    return begin_exchange(id.value, average.number, true);
  }
  rank.newest = std::max(rank.newest, average.number);
  AverageOrder order;
  order.stage = average.stage;
  order.number = average.number;
  order.is_closing = average.is_closing;
  order.is_global = average.is_global;
  order.is_alone = average.members.size() == 1 && !average.is_global && average.shards.empty();
  order.steps_done = average.steps_done;
  carry_out(id.value, rank.program.on_average(order));
}

void PipelineWorld::deliver_abort(Rank& rank, ReplicaId id, const AbortGroup& abort) {
  if (rank.exchange && rank.exchange->number == abort.number) {
    return end_exchange(id.value, false);
  }
  rank.aborted.insert(abort.number);
}

void PipelineWorld::hear(uint32_t id, const FromRank& message) {
  if (const auto* ready = std::get_if<ReadyReport>(&message)) {
    const uint32_t pipeline = layout_.pipeline_of({id});
    if (claims_max() > 1 && is_live(pipeline)) {
      std::deque<Claimed>& held = claims_[pipeline];
      ASSERT_TRUE(!held.empty() && ready->step >= held.front().step) << options_.seed;
      const uint64_t place = ready->step - held.front().step;
      ASSERT_LT(place, held.size()) << options_.seed;
      if (++held[place].reports == layout_.stages && place == 0) count_done(pipeline);
    }
    return apply(loop_.on_ready(replica_of(plan_, {id}).worker, *ready, now_us_));
  }
  if (const auto* signal = std::get_if<SendEarlySignal>(&message)) {
    return apply(
        loop_.on_early_signal(replica_of(plan_, {id}).worker, {id}, signal->step, now_us_));
  }
  const auto& averaged = std::get<Averaged>(message);
  apply(loop_.on_averaged(replica_of(plan_, {id}).worker, {id}, averaged.number, averaged.ok,
                          now_us_));
}

void PipelineWorld::carry_out(uint32_t id, const ProgramCommands& commands) {
  Rank& rank = ranks_[id];
  for (const ProgramCommand& command : commands) {
    if (const auto* ready = std::get_if<SendReady>(&command)) {
      ReadyReport report;
      report.replica = {id};
      report.step = ready->step;
      report.norm_squared = 1;
      report.busy_us = slowness_[layout_.pipeline_of({id})] * (50 + rng_.below(100));
      report.step_us = report.busy_us;
      report.loss_sum = report.loss_tokens = ready->stage + 1 == int64_t{layout_.stages} ? 1 : 0;
      rank.out.emplace_back(report);
    } else if (const auto* signal = std::get_if<SendEarlySignal>(&command)) {
      rank.out.emplace_back(*signal);
    } else if (const auto* run = std::get_if<RunAverage>(&command)) {
      begin_exchange(id, run->number, false);
    } else if (!std::holds_alternative<BeginRound>(command)) {
      rank.device.push_back(command);
    }
  }
}

void PipelineWorld::end_work(uint32_t id) {
  Rank& rank = ranks_[id];
  const ProgramCommand work = rank.device.front();
  rank.device.pop_front();
  const auto* part = std::get_if<RunAction>(&work);
  if (part && !part->is_last_part()) return carry_out(id, rank.program.on_work_done());
  if (options_.on_work) {
    const auto* run = std::get_if<RunAction>(&work);
    options_.on_work(id, work, rank.claims.at(run ? run->step : rank.updates).first);
  }
  if (const auto* run = std::get_if<RunAction>(&work)) {
    const bool is_forward = run->action.type == ActionType::kForward;
    const int32_t to = run->action.stage + (is_forward ? 1 : -1);
    if (to >= 0 && to < static_cast<int32_t>(layout_.stages)) {
      const ReplicaId next = layout_.replica(static_cast<uint32_t>(to), layout_.pipeline_of({id}));
      ranks_[next.value].inputs.push_back(
          {is_forward ? InputKind::kActivation : InputKind::kGradient, run->step, to,
           run->action.microbatch});
    }
  } else if (std::holds_alternative<RunUpdate>(work)) {
    rank.carried.insert(rank.claims.at(rank.updates++).first);
    rank.carried.merge(rank.pending);
    rank.pending.clear();
    rank.weight += rng_.uniform();
  }
  carry_out(id, rank.program.on_work_done());
}

void PipelineWorld::begin_exchange(uint32_t id, uint64_t number, bool is_nonblocking) {
  Rank& rank = ranks_[id];
  ASSERT_FALSE(rank.exchange) << "seed " << options_.seed << ": group " << number << " begins in "
                              << rank.exchange->number;
  rank.exchange = Exchange{number, is_nonblocking};
  Group& group = groups_.at(number);
  group.contribution[{id}] = rank.weight;
  if (options_.on_give) options_.on_give(id, group.order);
  group.carried.insert(rank.carried.begin(), rank.carried.end());
  group.carried.insert(rank.pending.begin(), rank.pending.end());
  if (!group.order.shards.empty()) {
    const std::set<uint64_t>& served = served_[static_cast<size_t>(group.order.stage)];
    group.carried.insert(served.begin(), served.end());
  }
  if (rank.aborted.erase(number) > 0) return end_exchange(id, false);
  const AverageWeights& order = group.order;
  if (order.members.size() == 1 && order.shards.empty()) end_exchange(id, true);
}

/// Once all have put in what they have, which dead ones may have done too; and a server needs all
/// of its shards.
bool PipelineWorld::can_end_exchange(const Rank& rank) const {
  if (!rank.exchange) return false;
  const Group& group = groups_.at(rank.exchange->number);
  const std::vector<ReplicaId>& shards = group.order.shards;
  const bool has_shards = std::none_of(shards.begin(), shards.end(),
                                       [this](ReplicaId id) { return ranks_[id.value].is_dead; });
  return has_shards && group.contribution.size() == group.order.members.size();
}

void PipelineWorld::end_exchange(uint32_t id, bool ok) {
  Rank& rank = ranks_[id];
  const Exchange ended = *std::exchange(rank.exchange, std::nullopt);
  Group& group = groups_.at(ended.number);
  if (ok && !ended.is_nonblocking && group.order.shards.empty()) {
    rank.weight = 0;
    for (const GroupMember& member : group.order.members) {
      rank.weight += member.weight * group.contribution.at(member.replica);
    }
  }
  if (ok && options_.on_take) options_.on_take(id, group.order);
  if (ok) {
    std::set<uint64_t>& to = ended.is_nonblocking ? rank.pending : rank.carried;
    to.insert(group.carried.begin(), group.carried.end());
    const bool is_served = !group.order.shards.empty();
    if (is_served && ++group.through == group.order.members.size()) {
      served_[static_cast<size_t>(group.order.stage)].merge(std::set(group.carried));
    }
  }
  rank.out.emplace_back(Averaged{ended.number, ok});
  if (ended.is_nonblocking) return;
  carry_out(id, rank.program.on_averaged(group.order.stage, ended.number, ok));
}

void PipelineWorld::begin_round() {
  done_.clear();
  for (std::set<uint64_t>& each : served_) each.clear();
  for (Rank& rank : ranks_) {
    rank.carried.clear();
    rank.pending.clear();
  }
  apply(loop_.begin(first_step_, first_step_ + options_.round_steps, now_us_));
}

/// All live pipeline replicas have the mean: as the coordinator, commit and begin the next one.
void PipelineWorld::end_round() {
  check_round();
  takes_mean_ = false;
  CommitOrder order;
  order.step = loop_.end_step() - 1;
  for (uint32_t id = 0; id < ranks_.size(); ++id) {
    if (is_live(layout_.pipeline_of({id}))) send({id}, order);
  }
  first_step_ = loop_.end_step();
  if (--rounds_left_ > 0) begin_round();
}

void PipelineWorld::check_mean_is_due() const {
  for (const auto& [pipeline, held] : claims_) {
    EXPECT_TRUE(held.empty()) << "seed " << options_.seed << ": " << pipeline << " has samples";
  }
  for (uint32_t id = 0; id < ranks_.size(); ++id) {
    const bool counts = is_live(layout_.pipeline_of({id})) && !ranks_[id].is_dead;
    EXPECT_FALSE(counts && ranks_[id].exchange) << "seed " << options_.seed << ": replica " << id;
  }
}

void PipelineWorld::check_round() {
  const auto batch = static_cast<uint64_t>(job_.training.global_batch_size);
  uint64_t next = first_step_ * batch;
  for (const auto& [first, done] : done_) {
    EXPECT_EQ(first, next) << "seed " << options_.seed;
    next = first + done.count;
  }
  EXPECT_EQ(next, loop_.end_step() * batch) << "seed " << options_.seed;
  uint64_t counted = 0;
  for (uint64_t samples : completed_->replica_samples) counted += samples;
  EXPECT_EQ(counted, next - first_step_ * batch);
  EXPECT_EQ(loop_.totals().iterations, done_.size());
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    std::set<double> weights;
    for (uint32_t pipeline = 0; pipeline < layout_.pipelines; ++pipeline) {
      const Rank& rank = ranks_[layout_.replica(stage, pipeline).value];
      if (!is_live(pipeline) || rank.is_dead) continue;
      weights.insert(rank.weight);
      EXPECT_TRUE(rank.program->has_global_state()) << "seed " << options_.seed;
      EXPECT_EQ(rank.program->steps_done(), loop_.end_step()) << "seed " << options_.seed;
      check_carried(stage, rank);
    }
    EXPECT_LE(weights.size(), 1u) << "seed " << options_.seed
                                  << ": pipeline replicas are not alike";
  }
}

/// No update of the round is lost, at no stage, whoever died.
void PipelineWorld::check_carried(uint32_t stage, const Rank& rank) const {
  for (const auto& [first, done] : done_) {
    EXPECT_TRUE(rank.carried.contains(first))
        << "seed " << options_.seed << ": stage " << stage << " lacks the samples from " << first
        << " of pipeline replica " << done.pipeline;
  }
}

}  // namespace skein::plans
