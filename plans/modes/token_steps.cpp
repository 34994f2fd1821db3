#include "plans/modes/token_steps.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/check.hpp"
#include "plans/modes/step_totals.hpp"
#include "plans/tokens/token_plan.hpp"

namespace skein::plans {

TokenSteps::TokenSteps(const JobSpec& job, const Plan& plan)
    : plan_(plan),
      shape_(token_shape(plan)),
      level_workers_(level_workers(plan)),
      policy_{job.tokens.depth_first, job.tokens.own_buckets},
      ahead_(static_cast<uint32_t>(job.tokens.ahead)),
      pool_(shape_),
      buckets_(shape_, level_workers_, std::vector<double>(level_workers_.front().size(), 1)),
      is_reducing_(plan.stages.size()) {
  for (const StagePlan& stage : plan.stages) {
    stages_.emplace_back(stage);
    for (const ReplicaPlan& replica : stage.replicas) workers_[replica.worker].use.ahead = ahead_;
  }
}

uint32_t TokenSteps::level_of(ReplicaId replica) const {
  return static_cast<uint32_t>(stage_of(plan_, replica));
}

bool TokenSteps::is_last(uint32_t level) const { return level + 1 == shape_.levels(); }

ReplicaId TokenSteps::replica_at(uint32_t level, WorkerId worker) const {
  for (const ReplicaPlan& replica : plan_.stages[level].replicas) {
    if (replica.worker == worker) return replica.id;
  }
  SKEIN_CHECK(false) << worker << " has nothing of stage " << level;
  return {};
}

std::vector<double> TokenSteps::speeds() const {
  std::vector<double> speeds;
  for (WorkerId worker : level_workers_.front()) {
    speeds.push_back(static_cast<double>(std::max<uint64_t>(1, pool_.samples_done(0, worker))));
  }
  return speeds;
}

ModeDecisions TokenSteps::begin(uint64_t first_step, uint64_t end_step, uint64_t) {
  SKEIN_CHECK(!is_in_progress_ && end_step == first_step + 1) << "step " << first_step;
  step_ = first_step;
  is_in_progress_ = true;
  buckets_ = TokenBuckets(shape_, level_workers_, speeds());
  pool_ = TokenPool(shape_);
  early_.clear();
  for (auto& [worker, own] : workers_) {
    const uint32_t ahead = ahead_in_next_step(own.use, ahead_);
    own = {};
    own.use.ahead = ahead;
  }
  is_reducing_.assign(is_reducing_.size(), false);
  return {};
}

ModeOutcome TokenSteps::on_token(WorkerId sender, ReplicaId replica, uint64_t step, int32_t token,
                                 TokenEvent event, uint64_t) {
  if (int64_t{replica.value} >= replica_count(plan_) || token < 0) {
    return Dropped{DropReason::kUnknown};
  }
  if (replica_of(plan_, replica).worker != sender) return Dropped{DropReason::kNotAllowed};
  if (!is_in_progress_) return Dropped{DropReason::kUnexpected};
  if (step != step_) return Dropped{step < step_ ? DropReason::kStale : DropReason::kEarly};
  const TokenId id{level_of(replica), static_cast<uint32_t>(token)};
  ModeDecisions decisions;
  std::optional<DropReason> why;
  switch (event) {
    case TokenEvent::kBegun:
      if (std::exchange(workers_.at(sender).has_begun, true)) why = DropReason::kRepeated;
      break;
    case TokenEvent::kOutput:
      why = is_last(id.level) ? DropReason::kUnexpected : on_output(sender, id);
      break;
    case TokenEvent::kDone:
      why = on_end(sender, id, decisions);
      break;
  }
  if (why) return Dropped{*why};
  grant_all(decisions);
  return decisions;
}

std::optional<DropReason> TokenSteps::on_output(WorkerId sender, TokenId id) {
  const Outcome<TokenPool::Tokens> taken = pool_.on_output(sender, id);
  if (taken.is_dropped()) return taken.why_dropped();
  --workers_.at(sender).granted;
  return std::nullopt;
}

/// The worker may have heard of what the consumer's worker has done before we have.
std::optional<DropReason> TokenSteps::on_end(WorkerId sender, TokenId id,
                                             ModeDecisions& decisions) {
  if (id.index >= shape_.count(id.level)) return DropReason::kUnknown;
  const TokenPool::Token& own = pool_.at(id);
  if (own.holder != sender) return DropReason::kNotAllowed;
  if (own.state == TokenPool::State::kDone) return DropReason::kRepeated;
  if (own.state == TokenPool::State::kClaimed && is_last(id.level)) {  // Forward and backward.
    if (const auto why = on_output(sender, id)) return why;
    ++workers_.at(sender).due;
  }
  if (own.state == TokenPool::State::kDue) {
    on_done(sender, id, decisions);
    return std::nullopt;
  }
  const bool is_early = own.state == TokenPool::State::kHeld &&
                        pool_.at(*pool_.consumer_of(id)).state > TokenPool::State::kReady;
  if (!is_early) return DropReason::kEarly;
  return early_.insert(id).second ? std::nullopt : std::optional(DropReason::kRepeated);
}

void TokenSteps::on_due(const TokenPool::Tokens& due, ModeDecisions& decisions) {
  for (TokenId id : due) {
    const WorkerId holder = *pool_.at(id).holder;
    ++workers_.at(holder).due;
    if (early_.erase(id) > 0) on_done(holder, id, decisions);
  }
}

void TokenSteps::on_done(WorkerId worker, TokenId id, ModeDecisions& decisions) {
  const Outcome<TokenPool::Tokens> due = pool_.on_done(worker, id);
  SKEIN_CHECK(!due.is_dropped()) << id.level << "." << id.index;
  --workers_.at(worker).due;
  if (pool_.is_done(id.level)) reduce(id.level, decisions);
  on_due(due.decisions(), decisions);
}

/// The members' reports follow.
void TokenSteps::reduce(uint32_t level, ModeDecisions& decisions) {
  is_reducing_[level] = true;
  stages_[level].expect_all(step_);
  for (const ReplicaPlan& replica : plan_.stages[level].replicas) {
    TokenOrder order;
    order.kind = TokenOrder::Kind::kReduce;
    order.replica = replica.id;
    order.step = step_;
    decisions.orders.push_back(OrderToken{std::move(order)});
  }
}

/// Each has one in turn, so that nobody has all while others wait.
void TokenSteps::grant_all(ModeDecisions& decisions) {
  bool has_granted = true;
  while (has_granted) {
    has_granted = false;
    for (auto& [worker, own] : workers_) {
      if (own.has_begun && own.granted < own.use.ahead && grant_one(worker, own, decisions))
        has_granted = true;
    }
  }
  note_kept();
}

void TokenSteps::note_kept() {
  std::vector<WorkerId> idle;
  for (const auto& [worker, own] : workers_) {
    if (own.has_begun && own.granted + own.due == 0) idle.push_back(worker);
  }
  for (auto& [worker, own] : workers_) {
    if (own.granted < 2 || own.use.kept_from_others) continue;
    const auto may_train = [this, level = own.newest_level](WorkerId other) {
      return buckets_.may_train(level, other);
    };
    own.use.kept_from_others = std::any_of(idle.begin(), idle.end(), may_train);
  }
}

bool TokenSteps::grant_one(WorkerId worker, Worker& own, ModeDecisions& decisions) {
  const TokenWish wish{worker, own.granted == 0 && own.due == 0};
  const std::optional<TokenId> id = choose_token(pool_, policy_, buckets_, wish);
  if (!id) return false;
  pool_.claim(*id, worker);
  ++own.granted;
  ++own.use.granted;
  own.newest_level = id->level;
  TokenOrder grant;
  grant.replica = replica_at(id->level, worker);
  grant.step = step_;
  grant.token = static_cast<int32_t>(id->index);
  for (TokenId input : pool_.inputs_of(*id)) {
    TokenOrder send;
    send.kind = TokenOrder::Kind::kSend;
    send.replica = replica_at(input.level, *pool_.at(input).holder);
    send.step = step_;
    send.token = static_cast<int32_t>(input.index);
    send.others = {grant.replica};
    grant.others.push_back(send.replica);
    decisions.orders.push_back(OrderToken{std::move(send)});
  }
  decisions.orders.push_back(OrderToken{std::move(grant)});
  return true;
}

ModeOutcome TokenSteps::on_ready(WorkerId sender, const ReadyReport& report, uint64_t) {
  if (int64_t{report.replica.value} >= replica_count(plan_)) return Dropped{DropReason::kUnknown};
  if (!is_in_progress_) return Dropped{DropReason::kUnexpected};
  if (const auto why = stages_[level_of(report.replica)].on_ready(sender, report)) {
    return Dropped{*why};
  }
  return try_complete();
}

ModeOutcome TokenSteps::on_reduced(WorkerId sender, ReplicaId replica, uint64_t step,
                                   double norm_squared, uint64_t) {
  if (int64_t{replica.value} >= replica_count(plan_)) return Dropped{DropReason::kUnknown};
  if (!is_in_progress_) return Dropped{DropReason::kUnexpected};
  if (const auto why = stages_[level_of(replica)].on_reduced(sender, replica, step, norm_squared)) {
    return Dropped{*why};
  }
  return try_complete();
}

ModeDecisions TokenSteps::try_complete() {
  ModeDecisions decisions;
  for (size_t s = 0; s < stages_.size(); ++s) {
    if (!is_reducing_[s] || !stages_[s].is_complete()) return decisions;
  }
  is_in_progress_ = false;
  decisions.completed = step_totals(plan_, stages_, step_ + 1);
  return decisions;
}

bool TokenSteps::awaits(ReplicaId replica) const {
  if (!is_in_progress_) return false;
  const uint32_t level = level_of(replica);
  if (is_reducing_[level]) return !stages_[level].is_final(replica);
  const Worker& own = workers_.at(replica_of(plan_, replica).worker);
  return !own.has_begun || own.granted + own.due > 0;
}

void TokenSteps::check_invariants() const {
  pool_.check_invariants();
  bool all = true;
  std::map<WorkerId, Worker> counted;
  for (uint32_t level = 0; level < shape_.levels(); ++level) {
    for (uint32_t index = 0; index < shape_.count(level); ++index) {
      const TokenPool::Token& token = pool_.at({level, index});
      if (token.state == TokenPool::State::kClaimed) ++counted[*token.holder].granted;
      if (token.state == TokenPool::State::kDue) ++counted[*token.holder].due;
    }
    const StageSync& stage = stages_[level];
    stage.check_invariants();
    SKEIN_CHECK(!stage.has_groups()) << "steps by tokens form no groups";
    SKEIN_CHECK(!is_in_progress_ || is_reducing_[level] == pool_.is_done(level))
        << "stage " << level << " is reduced at another time than its tokens are done";
    all = all && is_reducing_[level] && stage.is_complete();
  }
  for (const auto& [worker, own] : workers_) {
    if (!is_in_progress_) break;
    const Worker& other = counted[worker];
    SKEIN_CHECK(own.granted == other.granted && own.due == other.due) << worker;
    SKEIN_CHECK(own.granted <= own.use.ahead && own.use.ahead <= ahead_)
        << worker << " has " << own.granted << " of " << own.use.ahead;
  }
  SKEIN_CHECK(!is_in_progress_ || !all) << "step " << step_ << " is complete";
}

}  // namespace skein::plans
