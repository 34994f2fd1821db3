#include "plans/coordinator/commit_log.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/units.hpp"
#include "plans/job/sample_order.hpp"

namespace skein::plans {
namespace {

/// Checkpoints whose files are being written. Workers keep a copy of their state for each.
constexpr auto kCheckpointsMax = 2;
/// With those whose files are written and that wait to be made complete, which takes disk.
constexpr size_t kUnderWayMax = 4;
/// Failed checkpoints whose shards may still be on their way: a worker has two under way.
constexpr size_t kFailedMax = 4;

/// The first multiple of `interval` behind `step`; `most` if there is none before that.
uint64_t next_due(int64_t interval, uint64_t step, uint64_t most) {
  if (interval <= 0) return most;
  const auto every = static_cast<uint64_t>(interval);
  return std::min(most, (step / every + 1) * every);
}

/// True when an action that happens every `interval` steps is due after `steps_done` of them.
bool is_due(int64_t interval, uint64_t steps_done) {
  return interval > 0 && steps_done % static_cast<uint64_t>(interval) == 0;
}

double mean(double sum, uint64_t count) {
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

std::vector<WorkerId> first_workers(const Plan& plan) {
  std::vector<WorkerId> owners;
  for (const StagePlan& stage : plan.stages) owners.push_back(stage.replicas.front().worker);
  return owners;
}

}  // namespace

CommitLog::CommitLog(JobSpec job, uint64_t term, const Past& past)
    : job_(std::move(job)),
      term_(term),
      step_(past.committed),
      last_loss_(past.last_loss),
      last_norm_(past.last_norm),
      generations_(past.generations),
      durable_step_(past.durable),
      snapshots_(job_.elastic.snapshot_interval, job_.comm.train_timeout_seconds) {}

uint64_t generation_of(const std::map<uint64_t, uint64_t>& generations, uint64_t steps) {
  if (steps == 0) return 0;
  const auto behind = generations.upper_bound(steps - 1);
  return behind == generations.begin() ? 0 : std::prev(behind)->second;
}

bool CommitLog::is_complete() const { return step_ >= total_steps(); }

CommitOrder CommitLog::begin_generation(const Plan& plan, std::vector<WorkerId> snapshot_peers,
                                        uint64_t first_step, bool leaves_commits_behind,
                                        uint64_t now_us) {
  SKEIN_CHECK(first_step <= step_) << "step " << first_step << " of " << step_;
  plan_ = plan;
  leaves_commits_behind_ = leaves_commits_behind;
  if (first_step != step_) {  // What is redone orders it again.
    owed_validation_ = owed_checkpoint_ = late_checkpoint_ = false;
  }
  generations_.erase(generations_.lower_bound(first_step), generations_.end());
  step_ = first_step;
  holds_ = is_held_ = false;
  last_step_end_us_ = now_us;
  last_step_us_ = 0;
  snapshots_.begin_generation(first_workers(plan), std::move(snapshot_peers), first_step);
  CommitOrder order;
  order.step = step_ > 0 ? step_ - 1 : 0;
  order.last = is_complete() || stops_;
  order.validate = std::exchange(owed_validation_, false);
  order.checkpoint = std::exchange(owed_checkpoint_, false);
  if (order.last && step_ > 0 && job_.checkpoint.enable && durable_step_ != step_) {
    order.checkpoint = true;
  }
  if (order.validate) validations_[order.step].started_us = now_us;
  if (order.checkpoint) begin_checkpoint(step_, last_loss_, now_us);
  is_held_ = order.last;
  if (leaves_commits_behind_ && !order.last && snapshots_.is_possible()) {
    order.snapshot = true;
    snapshots_.on_ordered(step_, now_us);
  }
  return order;
}

CoordinatorDecisions CommitLog::end_generation() {
  CoordinatorDecisions decisions;
  SKEIN_CHECK(!journaling_) << "a commit is on its way to the journal";
  late_shards_.clear();
  for (const auto& [step, validation] : validations_) {
    if (step + 1 == step_) owed_validation_ = true;
  }
  validations_.clear();
  for (auto each = checkpoints_.begin(); each != checkpoints_.end();) {
    if (each->second.is_completing) {
      ++each;
      continue;
    }
    if (each->first == step_) {
      owed_checkpoint_ = true;
    } else {
      decisions.push_back(RunEvent{
          "checkpoint.abandoned",
          absl::StrCat("the checkpoint of step ", each->first, " was cut off by a change of plan"),
          {{"step", absl::StrCat(each->first)}}});
    }
    each = checkpoints_.erase(each);
  }
  return decisions;
}

CoordinatorDecisions CommitLog::on_completed(const CommitTotals& totals, uint64_t now_us) {
  SKEIN_CHECK(!journaling_ && !is_held_ && totals.end_step > step_)
      << "steps up to " << totals.end_step << " are complete, " << step_ << " are committed";
  last_ready_us_ = now_us;
  totals_ = totals;
  CommitRecord record;
  record.step = totals.end_step - 1;
  record.gradient_norm = totals.gradient_norm;
  record.loss = mean(totals.loss_sum, totals.loss_tokens);
  record.generation = plan_.generation;
  record.term = term_;
  const auto batch = static_cast<uint64_t>(job_.training.global_batch_size);
  record.first_sample = first_sample(step_, batch);
  record.sample_count = (totals.end_step - step_) * batch;
  if (!std::isfinite(record.loss) || !std::isfinite(record.gradient_norm)) {
    const std::string what = absl::StrCat("step ", record.step + 1);
    if (job_.tokens.reproducible && std::isfinite(record.loss)) return {too_large(what)};
    return {diverged(what, record.loss, record.gradient_norm)};
  }
  journaling_ = record;
  return {JournalCommit{record}};
}

uint64_t CommitLog::next_boundary(uint64_t steps) const {
  uint64_t end = next_due(static_cast<int64_t>(steps), step_, total_steps());
  if (job_.validation.batches > 0) end = next_due(job_.validation.interval, step_, end);
  if (job_.checkpoint.enable) end = next_due(job_.checkpoint.interval, step_, end);
  return end;
}

void CommitLog::begin_checkpoint(uint64_t steps_done, double loss, uint64_t now_us) {
  Checkpoint& checkpoint = checkpoints_[steps_done];
  checkpoint.loss = loss;
  checkpoint.ordered_us = now_us;
}

bool CommitLog::may_save_another() const {
  if (checkpoints_.size() >= kUnderWayMax) return false;
  return std::count_if(checkpoints_.begin(), checkpoints_.end(), [](const auto& each) {
           return !each.second.is_completing;
         }) < kCheckpointsMax;
}

/// Says so once for each time that a checkpoint has to wait.
std::optional<RunEvent> CommitLog::save_late(bool is_ordered) {
  const uint64_t done = journaling_->step + 1;
  if (is_ordered) late_checkpoint_ = false;
  if (is_ordered || late_checkpoint_ || !is_due(job_.checkpoint.interval, done)) return {};
  late_checkpoint_ = true;
  return RunEvent{
      "checkpoint.late",
      absl::StrCat("the checkpoint of step ", done, " waits, as ", checkpoints_.size(),
                   " before it are not complete yet; raise checkpoint.interval, or use faster "
                   "storage"),
      {{"step", absl::StrCat(done)}}};
}

CommitOrder CommitLog::make_order(uint64_t now_us) {
  CommitOrder order;
  const uint64_t done = journaling_->step + 1;
  const bool ends_job = done >= total_steps();
  const bool ends_run = stops_ || ends_job;
  order.step = journaling_->step;
  order.gradient_norm = journaling_->gradient_norm;
  order.last = ends_run || holds_;
  order.validate = job_.validation.batches > 0 &&
                   (ends_job || (!ends_run && is_due(job_.validation.interval, done)));
  const bool saves = late_checkpoint_ || is_due(job_.checkpoint.interval, done);
  order.checkpoint = job_.checkpoint.enable && (ends_run || (saves && may_save_another()));
  const bool is_due_now =
      !order.last && (leaves_commits_behind_ ? snapshots_.is_possible() : snapshots_.is_due(done));
  order.snapshot = is_due_now && !snapshots_.must_wait(now_us);
  if (is_due_now && !order.snapshot) snapshots_.on_waits();
  order.snapshot_floor = snapshots_.floor();
  return order;
}

BroadcastCommit CommitLog::make_broadcast(const CommitOrder& order, uint64_t now_us) const {
  BroadcastCommit commit;
  commit.order = order;
  commit.generation = plan_.generation;
  // Steps are counted from 1 for people: the first profiled one is the second, when all is warm.
  commit.profile = job_.profiling.enable_profiling && !order.last &&
                   (last_step_us_ == 0 || is_due(job_.profiling.profile_freq, order.step + 1));
  commit.loss = journaling_->loss;
  commit.step_seconds = static_cast<double>(now_us - last_step_end_us_) * kSecondsPerMicrosecond;
  commit.control_seconds = static_cast<double>(now_us - last_ready_us_) * kSecondsPerMicrosecond;
  commit.samples = journaling_->sample_count;
  commit.tokens = commit.samples * static_cast<uint64_t>(job_.training.seq_len);
  commit.stage_busy_seconds = totals_.stage_busy_seconds;
  commit.stage_device_wait_seconds = totals_.stage_device_wait_seconds;
  commit.stage_stash_peak = totals_.stage_stash_peak;
  commit.pipeline_samples = totals_.replica_samples;
  commit.stage_staleness = totals_.stage_staleness;
  commit.stage_weight_delay = totals_.stage_weight_delay;
  return commit;
}

Outcome<CoordinatorDecisions> CommitLog::on_journaled(uint64_t step, uint64_t now_us) {
  if (!journaling_) return Dropped{DropReason::kUnexpected};
  if (journaling_->step != step) return Dropped{DropReason::kStale};
  const CommitOrder order = make_order(now_us);
  const uint64_t end = step + 1;
  CoordinatorDecisions decisions = {make_broadcast(order, now_us)};
  last_commit_us_ = static_cast<double>(now_us - last_step_end_us_);
  last_step_us_ = last_commit_us_ / static_cast<double>(end - step_);
  last_pass_us_ =
      totals_.longest_pass_us > 0 ? static_cast<double>(totals_.longest_pass_us) : last_commit_us_;
  snapshots_.on_cost(totals_.snapshot_us, last_step_us_);
  is_held_ = order.last;
  if (order.snapshot) snapshots_.on_ordered(end, now_us);
  if (order.validate) validations_[step].started_us = now_us;
  if (job_.checkpoint.enable) {
    if (auto late = save_late(order.checkpoint)) decisions.push_back(*std::move(late));
  }
  if (order.checkpoint) begin_checkpoint(end, journaling_->loss, now_us);
  last_loss_ = journaling_->loss;
  last_norm_ = journaling_->gradient_norm;
  if (generation_of(step_) != plan_.generation) generations_[step_] = plan_.generation;
  journaling_.reset();
  step_ = end;
  last_step_end_us_ = now_us;
  return decisions;
}

Outcome<CoordinatorDecisions> CommitLog::on_validated(WorkerId sender, ReplicaId replica,
                                                      uint64_t step, double loss_sum,
                                                      uint64_t loss_tokens, uint64_t now_us) {
  const std::vector<ReplicaId> last = validating_replicas(plan_);
  const bool owns = std::find(last.begin(), last.end(), replica) != last.end() &&
                    replica_of(plan_, replica).worker == sender;
  if (!owns) return Dropped{DropReason::kNotAllowed};
  auto found = validations_.find(step);
  if (found == validations_.end()) return Dropped{DropReason::kUnexpected};
  if (!found->second.reported.insert(replica).second) return Dropped{DropReason::kRepeated};
  Validation& validation = found->second;
  validation.loss_sum += loss_sum;
  validation.loss_tokens += loss_tokens;
  last_step_end_us_ = now_us;  // The pass is no part of the next step's time.
  if (validation.reported.size() < last.size()) return CoordinatorDecisions{};
  const double tokens = static_cast<double>(std::max<uint64_t>(1, validation.loss_tokens));
  CoordinatorDecisions decisions = {ReportValidation{
      step, validation.loss_sum / tokens, validation.loss_tokens,
      static_cast<double>(now_us - validation.started_us) * kSecondsPerMicrosecond}};
  validations_.erase(found);
  return decisions;
}

std::optional<DropReason> CommitLog::check_shard(WorkerId sender, int32_t stage,
                                                 uint64_t steps_done) const {
  if (stage < 0 || stage >= static_cast<int32_t>(plan_.stages.size())) return DropReason::kUnknown;
  if (plan_.stages[static_cast<size_t>(stage)].replicas.front().worker != sender) {
    return DropReason::kNotAllowed;
  }
  const auto found = checkpoints_.find(steps_done);
  if (found == checkpoints_.end()) return DropReason::kUnexpected;
  if (found->second.is_completing || found->second.stages.contains(stage)) {
    return DropReason::kRepeated;
  }
  return std::nullopt;
}

void CommitLog::on_shard_announced(int32_t stage, uint64_t steps_done) {
  const auto checkpoint = checkpoints_.find(steps_done);
  if (checkpoint != checkpoints_.end()) checkpoint->second.announced.insert(stage);
}

bool CommitLog::takes_late_shard(WorkerId sender, int32_t stage, uint64_t steps_done) {
  const auto failed = late_shards_.find(steps_done);
  return check_shard(sender, stage, steps_done) == DropReason::kUnexpected &&
         failed != late_shards_.end() && failed->second.erase(stage) > 0;
}

Outcome<CoordinatorDecisions> CommitLog::on_shard_saved(WorkerId sender, int32_t stage,
                                                        uint64_t steps_done, bool ok) {
  if (const auto why = check_shard(sender, stage, steps_done)) return Dropped{*why};
  if (!ok) return CoordinatorDecisions{};
  Checkpoint& checkpoint = checkpoints_.at(steps_done);
  checkpoint.stages.insert(stage);
  if (checkpoint.stages.size() < plan_.stages.size()) return CoordinatorDecisions{};
  checkpoint.is_completing = true;
  return CoordinatorDecisions{CompleteCheckpoint{steps_done, checkpoint.loss}};
}

std::optional<DropReason> CommitLog::on_checkpoint_completed(uint64_t steps_done, bool ok,
                                                             uint64_t now_us) {
  const auto checkpoint = checkpoints_.find(steps_done);
  if (checkpoint == checkpoints_.end()) return DropReason::kUnexpected;
  if (!ok) {
    // One that is being completed, perhaps of an older plan, has all of its shards.
    std::set<int32_t>* late =
        checkpoint->second.is_completing ? nullptr : &late_shards_[steps_done];
    for (int32_t s = 0; late != nullptr && s < static_cast<int32_t>(plan_.stages.size()); ++s) {
      const Checkpoint& failed = checkpoint->second;
      if (!failed.stages.contains(s) && !failed.announced.contains(s)) late->insert(s);
    }
    if (late_shards_.size() > kFailedMax) late_shards_.erase(late_shards_.begin());
  } else {
    durable_step_ = std::max(durable_step_, steps_done);
    checkpoint_us_ = static_cast<double>(now_us - checkpoint->second.ordered_us);
  }
  checkpoints_.erase(checkpoint);
  return std::nullopt;
}

std::set<uint64_t> CommitLog::checkpoints_under_way() const {
  std::set<uint64_t> steps;
  for (const auto& [steps_done, checkpoint] : checkpoints_) steps.insert(steps_done);
  return steps;
}

std::vector<std::string> CommitLog::unfinished() const {
  std::vector<std::string> all;
  for (const auto& [step, validation] : validations_) {
    for (const ReplicaId replica : validating_replicas(plan_)) {
      if (validation.reported.contains(replica)) continue;
      all.push_back(absl::StrCat("the validation of step ", step + 1, " by w",
                                 replica_of(plan_, replica).worker.value));
    }
  }
  for (const auto& [steps_done, checkpoint] : checkpoints_) {
    if (checkpoint.is_completing) {
      all.push_back(absl::StrCat("the checkpoint of step ", steps_done, " on the disk"));
    }
    for (size_t s = 0; s < plan_.stages.size(); ++s) {
      if (checkpoint.stages.contains(static_cast<int32_t>(s))) continue;
      all.push_back(absl::StrCat("stage ", s, " of the checkpoint of step ", steps_done, " from w",
                                 plan_.stages[s].replicas.front().worker.value));
    }
  }
  return all;
}

bool CommitLog::completes_beyond(uint64_t steps) const {
  return std::any_of(checkpoints_.upper_bound(steps), checkpoints_.end(),
                     [](const auto& each) { return each.second.is_completing; });
}

void CommitLog::check_invariants() const {
  SKEIN_CHECK(durable_step_ <= step_) << "a checkpoint of " << durable_step_ << " steps";
  SKEIN_CHECK(step_ <= total_steps()) << step_ << " of " << total_steps() << " steps";
  SKEIN_CHECK(!journaling_ || (!is_held_ && journaling_->step >= step_)) << step_;
  for (const auto& [step, validation] : validations_) {
    SKEIN_CHECK(step < std::max<uint64_t>(1, step_)) << "a validation of step " << step;
  }
  for (const auto& [step, generation] : generations_) {
    SKEIN_CHECK(step < std::max<uint64_t>(1, step_)) << "step " << step << " has a generation";
  }
}

}  // namespace skein::plans
