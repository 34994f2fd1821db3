#include "plans/modes/local_updates.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/modes/last_claim.hpp"
#include "plans/plan/pipeline_plan.hpp"
#include "plans/sync/policy_kind.hpp"

namespace skein::plans {

LocalUpdates::LocalUpdates(const JobSpec& job, const Plan& plan,
                           std::unique_ptr<GroupScheduler> policy)
    : layout_(pipeline_layout(plan)),
      plan_(plan),
      batch_(static_cast<uint64_t>(job.training.global_batch_size)),
      round_steps_(static_cast<uint64_t>(std::max<int64_t>(1, job.sync.round_steps))),
      claims_max_(static_cast<size_t>(std::max<int64_t>(1, job.sync.claims_in_flight))),
      profiles_(job.profiling.enable_profiling),
      profile_freq_(static_cast<uint64_t>(std::max<int64_t>(1, job.profiling.profile_freq))),
      has_server_(has_server(job)),
      carried_(layout_),
      policy_(std::move(policy)) {
  for (const StagePlan& stage : plan.stages) stages_.emplace_back(stage);
  for (const ReplicaPlan& replica : plan.stages.front().replicas) {
    pipelines_.push_back(
        {.claims = ClaimsInFlight(layout_.stages), .turns = TurnNaming(job.sharing.weight)});
    samples_.push_back(static_cast<uint64_t>(replica.rows.count * plan.microbatch_count));
    is_sized_ = is_sized_ || samples_.back() != samples_.front();
  }
}

ModeDecisions LocalUpdates::begin(uint64_t first_step, uint64_t end_step, uint64_t now_us) {
  SKEIN_CHECK(is_global_ && !has_failed_ && first_step < end_step)
      << "the round before " << first_step << " has not ended";
  now_us_ = begun_us_ = now_us;
  end_step_ = end_step;
  is_global_ = is_meeting_ = has_ended_ = has_pushed_ = false;
  iterations_.clear();
  staleness_.assign(layout_.stages, 0);
  pool_.emplace(first_step * batch_, end_step * batch_);
  for (size_t n = 0; n < pipelines_.size(); ++n) {
    pipelines_[n].iterations = 0;
    pipelines_[n].trained = samples_[n];
  }
  profiles_round_ = profiles_ && (!profiled_step_ || first_step >= *profiled_step_ + profile_freq_);
  if (profiles_round_) profiled_step_ = first_step;
  CoordinatorDecisions orders;
  for (uint32_t pipeline = 0; pipeline < layout_.pipelines; ++pipeline) resume(pipeline, orders);
  // In turns, as a short round may not have enough for all.
  for (size_t more = 1; more < claims_max_; ++more) {
    for (uint32_t pipeline = 0; pipeline < layout_.pipelines; ++pipeline) {
      if (pipelines_[pipeline].claims.size() == more) take_claim(pipeline, orders);
    }
  }
  return made(std::move(orders));
}

void LocalUpdates::on_turn_report(WorkerId worker, const TurnReport& report) {
  for (uint32_t pipeline : pipelines_of(worker)) pipelines_[pipeline].turns.on_report(report);
}

/// What an event has led to, with the end of the round if it was that.
ModeDecisions LocalUpdates::made(CoordinatorDecisions orders) {
  ModeDecisions decisions;
  decisions.orders = std::move(orders);
  if (has_failed_) {
    decisions.failed = "no pipeline replica can end the round";
  } else if (std::exchange(has_ended_, false)) {
    const RoundTotals done = totals();
    CommitTotals& totals = decisions.completed.emplace();
    totals.end_step = end_step_;
    totals.loss_sum = done.loss_sum;
    totals.loss_tokens = done.loss_tokens;
    totals.gradient_norm =
        done.iterations == 0 ? 0 : done.norm_sum / static_cast<double>(done.iterations);
    for (double busy : done.busy_seconds) {
      totals.stage_busy_seconds.push_back(busy / static_cast<double>(layout_.pipelines));
    }
    for (double wait : done.wait_seconds) {
      totals.stage_device_wait_seconds.push_back(wait / static_cast<double>(layout_.pipelines));
    }
    totals.stage_stash_peak = done.stash_peak;
    totals.replica_samples = done.samples;
    totals.stage_staleness = staleness_;
    totals.stage_weight_delay = done.weight_delay;
    totals.longest_pass_us = now_us_ - closes_since_us_;
    last_timings_ = {};
    for (const PipelineIteration& each : iterations_) {
      ModeTimings::Pass pass{each.pipeline, each.step_us(), {}};
      for (const auto& [stage, report] : each.reports) {
        pass.busy_us[layout_.replica(stage, each.pipeline)] = report.busy_us;
        totals.longest_pass_us = std::max(totals.longest_pass_us, report.step_us);
      }
      last_timings_.passes.push_back(std::move(pass));
    }
  }
  return decisions;
}

/// Samples of a lost pipeline replica are for whoever has nothing to do.
void LocalUpdates::redo_returned(CoordinatorDecisions& orders) {
  for (uint32_t pipeline = 0; pipeline < layout_.pipelines; ++pipeline) {
    if (!pool_->state().returned.empty()) resume(pipeline, orders);
  }
}

void LocalUpdates::cut_short() {
  if (is_global_ || is_meeting_) return;
  const uint64_t fresh = pool_->state().fresh;
  end_step_ = std::min(end_step_, (fresh + batch_ - 1) / batch_);
  pool_->limit(end_step_ * batch_);
}

void LocalUpdates::begin_claim(uint32_t pipeline, const SampleClaim& claim) {
  ClaimsInFlight& claims = pipelines_[pipeline].claims;
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    // Others report what they have first.
    if (!claims.awaits(stage)) expect_next(pipeline, stage);
  }
  claims.give(claim);
}

void LocalUpdates::expect_next(uint32_t pipeline, uint32_t stage) {
  stages_[stage].expect(layout_.replica(stage, pipeline),
                        pipelines_[pipeline].claims.awaited(stage));
}

/// Lets a pipeline replica that does nothing have samples, if there are any. While it is in the
/// push of a round's end it does not get any: it does once it is through.
void LocalUpdates::resume(uint32_t pipeline, CoordinatorDecisions& orders) {
  Pipeline& own = pipelines_[pipeline];
  if (own.is_lost || !own.claims.empty()) return;
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    if (is_in_group(layout_.replica(stage, pipeline))) return;
  }
  const std::optional<SampleClaim> claim = claim_for(pipeline);
  if (!claim) return leave_policy(pipeline, orders);
  begin_claim(pipeline, *claim);
  orders.push_back(
      ClaimSamples{pipeline, own.claims.step(), *claim, is_profiled(), name_turn_of(pipeline)});
  if (own.has_policy) return;
  own.has_policy = true;
  tell_policy({pipeline, true, own.claims.step()}, orders);
}

/// Stages that wait go on alone: the policy has no group for them any more.
void LocalUpdates::leave_policy(uint32_t pipeline, CoordinatorDecisions& orders) {
  Pipeline& own = pipelines_[pipeline];
  if (!std::exchange(own.has_policy, false)) return;
  for (uint32_t stage : std::exchange(own.waiting, {})) {
    go_on_alone(layout_.replica(stage, pipeline), orders);
  }
  tell_policy({pipeline, false, own.claims.step()}, orders);
}

void LocalUpdates::tell_policy(const MembershipChange& change, CoordinatorDecisions& orders) {
  follow_policy(policy_->on_membership(change, now_us_), orders);
}

/// Executes what the policy has decided, and what it decides when it hears that a group could not
/// be. Each of those sets members free who are not ready any more, so this ends.
void LocalUpdates::follow_policy(GroupDecisions decisions, CoordinatorDecisions& orders) {
  std::deque<GroupStart> starts(decisions.starts.begin(), decisions.starts.end());
  wake_us_ = decisions.wake_us;
  while (!starts.empty()) {
    const GroupStart start = std::move(starts.front());
    starts.pop_front();
    if (start_group(start, orders)) continue;
    GroupDecisions more = policy_->on_group_end({start.number, false}, now_us_);
    wake_us_ = more.wake_us;
    for (GroupStart& each : more.starts) starts.push_back(std::move(each));
  }
}

ModeOutcome LocalUpdates::on_ready(WorkerId sender, const ReadyReport& report, uint64_t now_us) {
  if (!layout_.has(report.replica)) return Dropped{DropReason::kUnknown};
  now_us_ = now_us;
  const uint32_t pipeline = layout_.pipeline_of(report.replica);
  if (pipelines_[pipeline].is_lost) return Dropped{DropReason::kUnknown};
  Pipeline& own = pipelines_[pipeline];
  if (own.claims.empty() || has_diverged_) return Dropped{DropReason::kUnexpected};
  ReadyReport whole = report;
  whole.needs_groups = false;  // Its update is its own: nothing is reduced.
  if (const auto why = stage_of(report.replica).on_ready(sender, whole)) return Dropped{*why};
  const uint32_t stage = layout_.stage_of(report.replica);
  own.turns.on_report(report.turns);
  CoordinatorDecisions orders;
  if (is_flushed()) {
    own.claims.report(stage, whole);
    if (own.claims.is_oldest_done()) update(pipeline, orders);
    return made(std::move(orders));
  }
  update_stage(pipeline, stage, whole, orders);
  if (own.claims.is_oldest_done() && !has_diverged_) {
    finish(pipeline);
    while (take_claim(pipeline, orders)) continue;
    redo_returned(orders);
    try_meet(orders);
  }
  return made(std::move(orders));
}

ModeOutcome LocalUpdates::on_early_signal(WorkerId sender, ReplicaId replica, uint64_t step,
                                          uint64_t now_us) {
  if (!layout_.has(replica)) return Dropped{DropReason::kUnknown};
  now_us_ = now_us;
  const uint32_t pipeline = layout_.pipeline_of(replica);
  if (pipelines_[pipeline].is_lost) return Dropped{DropReason::kUnknown};
  if (is_flushed() || pipelines_[pipeline].claims.empty() || has_diverged_) {
    return Dropped{DropReason::kUnexpected};
  }
  if (const auto why = stage_of(replica).on_early_signal(sender, replica, step))
    return Dropped{*why};
  CoordinatorDecisions orders;
  ask_for_group(pipeline, layout_.stage_of(replica), orders);
  return made(std::move(orders));
}

/// A stage is about to apply an update, and asks for its group.
void LocalUpdates::ask_for_group(uint32_t pipeline, uint32_t stage, CoordinatorDecisions& orders) {
  Pipeline& own = pipelines_[pipeline];
  const ReplicaId replica = layout_.replica(stage, pipeline);
  const uint64_t step = own.claims.ask(stage);
  carried_.on_update(pipeline, stage);
  if (!own.has_policy) return go_on_alone(replica, orders);
  own.waiting.insert(stage);
  follow_policy(policy_->on_ready({replica, step}, now_us_), orders);
}

/// A stage has reported a claim; it applies its update, if that is finite.
void LocalUpdates::update_stage(uint32_t pipeline, uint32_t stage, const ReadyReport& report,
                                CoordinatorDecisions& orders) {
  ClaimsInFlight& claims = pipelines_[pipeline].claims;
  const bool has_asked = claims.has_asked(stage);
  PipelineIteration so_far;  // The last stage, which has the loss, reports first.
  const ClaimsInFlight::Claim& claim = claims.report(stage, report);
  so_far.reports = claim.reports;
  if (declare_diverged(pipeline, claim.samples, so_far.loss_sum(), so_far.loss_tokens(),
                       std::sqrt(report.norm_squared), orders)) {
    return;
  }
  if (claims.awaits(stage)) expect_next(pipeline, stage);
  if (!has_asked) ask_for_group(pipeline, stage, orders);
}

/// One more for a pipeline replica that may hold several. When the pool has none for it, it leaves
/// the policy and does those that it holds: no stage of others waits for it meanwhile.
bool LocalUpdates::take_claim(uint32_t pipeline, CoordinatorDecisions& orders) {
  Pipeline& own = pipelines_[pipeline];
  if (!own.has_policy || own.claims.size() >= claims_max_) return false;
  const std::optional<SampleClaim> claim = next_claim(pipeline);
  if (!claim) {
    leave_policy(pipeline, orders);
    return false;
  }
  const uint64_t step = own.claims.next_step();
  begin_claim(pipeline, *claim);
  orders.push_back(ClaimSamples{pipeline, step, *claim, is_profiled()});
  return true;
}

/// So long after one claim it is through with the next, if nobody holds it up. Flushed, all of it
/// counts; else its busiest worker, who may have several stages.
uint64_t LocalUpdates::pace_us(const PipelineIteration& iteration) const {
  if (is_flushed()) return std::max<uint64_t>(1, iteration.step_us());
  std::map<WorkerId, uint64_t> busy_us;
  uint64_t longest = 1;
  for (const auto& [stage, report] : iteration.reports) {
    const StagePlan& plan = plan_.stages[stage];
    uint64_t& own = busy_us[plan.replicas[iteration.pipeline].worker];
    own += report.busy_us;
    longest = std::max(longest, own);
  }
  return longest;
}

/// All stages of a pipeline replica have reported its oldest claim.
const PipelineIteration& LocalUpdates::finish(uint32_t pipeline) {
  Pipeline& own = pipelines_[pipeline];
  const uint64_t step = own.claims.step();
  ClaimsInFlight::Claim done = own.claims.end_oldest();
  const PipelineIteration& iteration = iterations_.emplace_back(
      PipelineIteration{pipeline, step, done.samples, std::move(done.reports)});
  SKEIN_CHECK(pool_->finish(pipeline, iteration.claim.first))
      << "pipeline replica " << pipeline << " has no claim";
  own.pace_us = pace_us(iteration);
  own.step_us = iteration.step_us();
  own.trained = iteration.claim.count;
  ++own.iterations;
  return iteration;
}

bool LocalUpdates::declare_diverged(uint32_t pipeline, const SampleClaim& claim, double loss_sum,
                                    uint64_t loss_tokens, double norm,
                                    CoordinatorDecisions& orders) {
  if (std::isfinite(loss_sum) && std::isfinite(norm)) return false;
  has_diverged_ = true;
  orders.push_back(
      diverged(absl::StrCat("pipeline replica ", pipeline, ", samples from ", claim.first),
               loss_sum / static_cast<double>(std::max<uint64_t>(1, loss_tokens)), norm));
  return true;
}

/// From the start of a round until all pipeline replicas have done an iteration, or as many as show
/// them without a flush: fast ones several.
bool LocalUpdates::is_profiled() const {
  const uint64_t wanted = is_flushed() ? 1 : claims_max_ + 1;
  return profiles_round_ &&
         std::any_of(pipelines_.begin(), pipelines_.end(), [wanted](const Pipeline& each) {
           return !each.is_lost && each.iterations < wanted;
         });
}

std::optional<double> LocalUpdates::time_when_cut_short(uint64_t now_us) const {
  double longest = 0;
  for (const Pipeline& each : pipelines_) {
    if (each.claims.empty()) continue;
    // Nobody knows how long the first one takes: so long at least.
    const uint64_t step_us = each.step_us > 0 ? each.step_us : now_us - begun_us_;
    // Those behind the first one follow at a distance, once the pipeline is full.
    const size_t steps = each.claims.size() + (is_flushed() ? 0 : 1);
    longest = std::max(longest, static_cast<double>(step_us * steps));
  }
  return longest;
}

RoundTotals LocalUpdates::totals() const { return totals_of(layout_, iterations_); }

std::optional<SampleClaim> LocalUpdates::claim_for(uint32_t pipeline) {
  return pool_->claim(pipeline, samples_[pipeline]);
}

/// There is none, too, if all would wait for it at the end of the round.
std::optional<SampleClaim> LocalUpdates::next_claim(uint32_t pipeline) {
  if (would_be_last(pipeline)) return std::nullopt;
  return claim_for(pipeline);
}

/// Samples of the claim that the replica's next average follows: the one that its stage has asked
/// for a group for last, which other stages may not have done yet.
uint64_t LocalUpdates::trained(ReplicaId replica) const {
  const Pipeline& own = pipelines_[layout_.pipeline_of(replica)];
  if (is_flushed()) return own.trained;
  const std::optional<SampleClaim> claim = own.claims.asked_for(layout_.stage_of(replica));
  return claim ? claim->count : own.trained;
}

/// Keeps the sum of the weights.
void LocalUpdates::weigh(std::vector<GroupMember>& members, bool is_global) const {
  if (!is_sized_) return;
  double before = 0, after = 0;
  for (GroupMember& each : members) {
    before += each.weight;
    const uint64_t own =
        is_global ? samples_[layout_.pipeline_of(each.replica)] : trained(each.replica);
    each.weight *= static_cast<double>(own);
    after += each.weight;
  }
  if (after == 0) return;
  for (GroupMember& each : members) each.weight *= before / after;
}

bool LocalUpdates::would_be_last(uint32_t pipeline) const {
  const ClaimPool::State& pool = pool_->state();
  if (!pool.returned.empty()) return false;
  std::vector<PipelinePace> paces;
  for (size_t n = 0; n < pipelines_.size(); ++n) {
    const Pipeline& each = pipelines_[n];
    // Who has left the policy does what it holds, and no more.
    paces.push_back({!each.claims.empty() && each.has_policy, static_cast<double>(each.pace_us),
                     static_cast<double>(each.claims.size()), static_cast<double>(samples_[n])});
  }
  return plans::would_be_last(paces, pipeline, static_cast<double>(pool.end - pool.fresh));
}

/// All replicas of a pipeline replica are ready: they apply their updates, and go on.
void LocalUpdates::update(uint32_t pipeline, CoordinatorDecisions& orders) {
  Pipeline& own = pipelines_[pipeline];
  const uint64_t step = own.claims.step();
  PipelineIteration whole;
  whole.reports = own.claims.claims().front().reports;
  if (declare_diverged(pipeline, own.claims.claims().front().samples, whole.loss_sum(),
                       whole.loss_tokens(), whole.gradient_norm(), orders)) {
    return;
  }
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) carried_.on_update(pipeline, stage);
  const PipelineIteration& done = finish(pipeline);
  CommitPipeline commit;
  commit.pipeline = pipeline;
  commit.step = step;
  commit.gradient_norm = done.gradient_norm();
  commit.claim = done.claim;
  commit.next = next_claim(pipeline);
  if (commit.next) begin_claim(pipeline, *commit.next);
  commit.profile = commit.next && is_profiled();
  const bool goes_on = commit.next.has_value();
  if (goes_on) commit.turn = name_turn_of(pipeline);
  orders.push_back(commit);
  if (!goes_on) {
    own.turns.on_pause();
    leave_policy(pipeline, orders);
    return try_meet(orders);
  }
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    const ReplicaId replica = layout_.replica(stage, pipeline);
    follow_policy(policy_->on_ready({replica, step}, now_us_), orders);
  }
}

/// False if there can be no such group, as the server has lost a shard: who waits goes on alone.
bool LocalUpdates::start_group(const GroupStart& start, CoordinatorDecisions& orders) {
  const bool is_served = start.average == Average::kServer;
  const bool is_local = start.average == Average::kLocal;
  for (const GroupMember& member : start.members) {
    const bool is_lost = pipelines_[layout_.pipeline_of(member.replica)].is_lost;
    SKEIN_CHECK(!is_lost) << "the policy has put " << member.replica << ", lost, in a group";
    SKEIN_CHECK(is_local || !is_in_group(member.replica))
        << "the policy has put " << member.replica << " in two groups";
  }
  for (const GroupMember& member : start.members) {
    if (member.is_nonblocking) continue;
    pipelines_[layout_.pipeline_of(member.replica)].waiting.erase(layout_.stage_of(member.replica));
  }
  if (is_served && has_lost()) {
    for (const GroupMember& member : start.members) {
      if (!member.is_nonblocking) go_on_alone(member.replica, orders);
    }
    return false;
  }
  AverageWeights average;
  average.number = next_number_++;
  average.stage = start.stage;
  average.members = start.members;
  average.staleness = start.staleness;
  weigh(average.members, /*is_global=*/false);
  uint64_t& staleness = staleness_[static_cast<size_t>(start.stage)];
  staleness = std::max(staleness, start.staleness);
  if (!is_local) {
    Group group;
    group.policy_number = start.number;
    group.has_server = is_served;
    if (is_served) {
      average.shards = stages_[static_cast<size_t>(start.stage)].live();
      average.has_group_server = start.server > 0;
      // The policy's weights depend on who is in its hands now; a sample counts the same at all
      // times.
      for (GroupMember& each : average.members) each.weight = share_of(each.replica);
    }
    begin_group(average, std::move(group));
  }
  orders.push_back(std::move(average));
  return true;
}

/// The samples that it has just trained on, in shares of a whole claim of each pipeline replica.
double LocalUpdates::share_of(ReplicaId replica) const {
  if (!is_sized_) return 1.0 / layout_.pipelines;
  const uint64_t all = std::accumulate(samples_.begin(), samples_.end(), uint64_t{0});
  return static_cast<double>(trained(replica)) / static_cast<double>(all);
}

void LocalUpdates::go_on_alone(ReplicaId replica, CoordinatorDecisions& orders) {
  AverageWeights alone;
  alone.number = next_number_++;
  alone.stage = static_cast<int32_t>(layout_.stage_of(replica));
  alone.members = {{replica, pipelines_[layout_.pipeline_of(replica)].claims.step(), 1}};
  orders.push_back(std::move(alone));
}

void LocalUpdates::begin_group(const AverageWeights& average, Group group) {
  group.stage = static_cast<uint32_t>(average.stage);
  group.contribution = carried_.contribution(group.stage, average.members, group.has_server);
  std::set<ReplicaId> members;
  for (const GroupMember& member : average.members) members.insert(member.replica);
  stages_[group.stage].begin_group(average.number, members);
  groups_[average.number] = std::move(group);
}

ModeOutcome LocalUpdates::on_averaged(WorkerId sender, ReplicaId replica, uint64_t number, bool ok,
                                      uint64_t now_us) {
  if (!layout_.has(replica)) return Dropped{DropReason::kUnknown};
  now_us_ = now_us;
  const auto through = stage_of(replica).on_group_done(sender, replica, number, ok);
  if (through.is_dropped()) return Dropped{*through.why_dropped()};
  CoordinatorDecisions orders;
  for (const EndedGroup& ended : through.decisions()) end_group(ended, orders);
  redo_returned(orders);
  try_meet(orders);
  return made(std::move(orders));
}

void LocalUpdates::end_group(const EndedGroup& ended, CoordinatorDecisions& orders) {
  const Group group = groups_.at(ended.number);
  groups_.erase(ended.number);
  const bool has_live = std::any_of(ended.members.begin(), ended.members.end(), [&](ReplicaId id) {
    return !pipelines_[layout_.pipeline_of(id)].is_lost;
  });
  if (!has_live) return;
  if (ended.ok)
    carried_.on_averaged(group.stage, ended.members, group.contribution, group.has_server);
  if (!group.is_closing) {
    return follow_policy(policy_->on_group_end({group.policy_number, ended.ok}, now_us_), orders);
  }
  if (!group.is_global) return;
  has_failed_ = has_failed_ || !ended.ok;
  if (!groups_.empty() || has_failed_) return;
  is_meeting_ = false;
  is_global_ = has_ended_ = true;
  carried_.on_global();
}

ModeDecisions LocalUpdates::on_timer(uint64_t now_us) {
  now_us_ = now_us;
  CoordinatorDecisions orders;
  if (wake_us_ && now_us >= *wake_us_) {
    wake_us_.reset();
    follow_policy(policy_->on_timer(now_us), orders);
  }
  return made(std::move(orders));
}

/// Starts the global average, and before it the push to the servers, when every pipeline replica
/// is idle and no group runs.
void LocalUpdates::try_meet(CoordinatorDecisions& orders) {
  if (is_meeting_ || is_global_ || has_failed_ || !pool_ || !pool_->is_over() || !groups_.empty()) {
    return;
  }
  for (const Pipeline& each : pipelines_) {
    if (!each.claims.empty()) return;
  }
  closes_since_us_ = now_us_;
  const bool pushes = has_server_ && !has_lost() && !std::exchange(has_pushed_, true);
  is_meeting_ = !pushes;
  close(!pushes, orders);
}

/// Groups of all pipeline replicas at every stage.
void LocalUpdates::close(bool is_global, CoordinatorDecisions& orders) {
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    const std::vector<ReplicaId> live = stages_[stage].live();
    AverageWeights average;
    average.number = next_number_++;
    average.stage = static_cast<int32_t>(stage);
    average.is_closing = true;
    average.is_global = is_global;
    average.steps_done = end_step_;
    if (!is_global) average.shards = live;
    Group group;
    group.is_closing = true;
    group.is_global = is_global;
    group.has_server = !is_global;
    for (ReplicaId replica : live) {
      average.members.push_back({replica, pipelines_[layout_.pipeline_of(replica)].claims.step(),
                                 1.0 / static_cast<double>(live.size())});
    }
    weigh(average.members, /*is_global=*/true);
    begin_group(average, std::move(group));
    orders.push_back(std::move(average));
  }
}

std::set<uint32_t> LocalUpdates::pipelines_of(WorkerId worker) const {
  std::set<uint32_t> pipelines;
  for (const StagePlan& stage : plan_.stages) {
    for (const ReplicaPlan& replica : stage.replicas) {
      if (replica.worker == worker) pipelines.insert(layout_.pipeline_of(replica.id));
    }
  }
  return pipelines;
}

/// Also those that it was through with: what it has sent may be on its way, or gone with it. With a
/// server, all of them lack its shard.
void LocalUpdates::abort_groups_of(uint32_t pipeline, CoordinatorDecisions& orders) {
  std::vector<uint64_t> numbers;
  for (const auto& [number, group] : groups_) {
    const ReplicaId own = layout_.replica(group.stage, pipeline);
    if (group.has_server || stages_[group.stage].is_member(number, own)) numbers.push_back(number);
  }
  for (uint64_t number : numbers) {
    const Group& group = groups_.at(number);
    if (group.is_global) has_failed_ = true;
    StageSync::Abort abort = stages_[group.stage].abort_group(number);
    if (!abort.awaited.empty()) orders.push_back(AbortGroup{number, std::move(abort.awaited)});
    if (abort.ended) end_group(*abort.ended, orders);
  }
}

/// Gives the samples back whose updates are in the weights of lost pipeline replicas only, at some
/// stage.
void LocalUpdates::redo_lost_iterations() {
  std::vector<uint32_t> live;
  for (uint32_t pipeline = 0; pipeline < layout_.pipelines; ++pipeline) {
    if (!pipelines_[pipeline].is_lost) live.push_back(pipeline);
  }
  std::erase_if(iterations_, [&](const PipelineIteration& each) {
    if (each.step < carried_.carried(each.pipeline, live)) return false;
    pool_->undo(each.pipeline, each.claim);
    return true;
  });
}

ModeDecisions LocalUpdates::lose(WorkerId worker, uint64_t now_us) {
  now_us_ = now_us;
  CoordinatorDecisions orders;
  std::vector<uint32_t> lost;
  for (uint32_t pipeline : pipelines_of(worker)) {
    Pipeline& own = pipelines_[pipeline];
    if (std::exchange(own.is_lost, true)) continue;
    lost.push_back(pipeline);
    own.claims.clear();
    own.waiting.clear();
    for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
      stages_[stage].lose(layout_.replica(stage, pipeline));
    }
    if (pool_) pool_->forget(pipeline);
  }
  if (lost.empty()) return made(std::move(orders));
  // The policy hears of it first: with the outcome of a group it might put who is lost into others.
  for (uint32_t pipeline : lost) leave_policy(pipeline, orders);
  for (uint32_t pipeline : lost) abort_groups_of(pipeline, orders);
  // The average may have been taken in part.
  has_failed_ = has_failed_ || is_meeting_ ||
                std::all_of(pipelines_.begin(), pipelines_.end(),
                            [](const Pipeline& each) { return each.is_lost; });
  if (!has_failed_ && !is_global_) {
    redo_lost_iterations();
    redo_returned(orders);
    try_meet(orders);
  }
  return made(std::move(orders));
}

bool LocalUpdates::has_lost() const {
  return std::any_of(pipelines_.begin(), pipelines_.end(),
                     [](const Pipeline& each) { return each.is_lost; });
}

bool LocalUpdates::awaits(ReplicaId replica) const {
  const Pipeline& own = pipelines_[layout_.pipeline_of(replica)];
  const uint32_t stage = layout_.stage_of(replica);
  if (own.waiting.contains(stage)) return false;  // It waits for others.
  return own.claims.awaits(stage) || is_in_group(replica);
}

void LocalUpdates::check_invariants() const {
  size_t computing = 0;
  for (uint32_t pipeline = 0; pipeline < layout_.pipelines; ++pipeline) {
    const Pipeline& own = pipelines_[pipeline];
    computing += own.claims.size();
    SKEIN_CHECK(!own.is_lost || (own.claims.empty() && !own.has_policy)) << pipeline << " is lost";
    SKEIN_CHECK(own.claims.size() <= claims_max_) << own.claims.size() << " claims";
    SKEIN_CHECK(own.waiting.empty() || own.has_policy) << pipeline << " waits for nothing";
    if (!own.is_lost) own.claims.check_invariants();
    if (has_diverged_) continue;
    for (const ClaimsInFlight::Claim& each : own.claims.claims()) {
      const auto& held = pool_->state().held;
      const auto claim = held.find(each.samples.first);
      const bool is_own = claim != held.end() && claim->second.pipeline == pipeline &&
                          claim->second.count == each.samples.count &&
                          each.samples.count <= samples_[pipeline];
      SKEIN_CHECK(is_own) << "pipeline replica " << pipeline << " trains on what it does not hold";
    }
  }
  SKEIN_CHECK(!pool_ || has_diverged_ || pool_->state().held.size() == computing)
      << pool_->state().held.size() << " claims, " << computing << " compute";
  if (pool_) pool_->check_invariants();
  size_t running = 0;
  for (const StageSync& stage : stages_) {
    stage.check_invariants();
    running += stage.has_groups() ? 1 : 0;
  }
  SKEIN_CHECK((running == 0) == groups_.empty()) << groups_.size() << " groups";
  for (const auto& [number, group] : groups_) {
    SKEIN_CHECK(number < next_number_ && (!is_meeting_ || group.is_global)) << "group " << number;
  }
  SKEIN_CHECK(!is_meeting_ || computing == 0) << computing << " compute while all meet";
  SKEIN_CHECK(!is_global_ || (computing == 0 && groups_.empty())) << "the round has ended";
}

}  // namespace skein::plans
