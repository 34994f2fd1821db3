#include "plans/coordination.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/layout_plan.hpp"
#include "plans/sample_order.hpp"

namespace skein::plans {
namespace {

constexpr double kMicro = 1e-6;

void append(CoordinatorDecisions& to, CoordinatorDecisions from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

/// True when an action that happens every `interval` steps is due after `steps_done` of them.
bool is_due(int64_t interval, uint64_t steps_done) {
  return interval > 0 && steps_done % static_cast<uint64_t>(interval) == 0;
}

}  // namespace

Coordination::Coordination(Options options, uint64_t now_us)
    : options_(std::move(options)), step_(options_.first_step), last_progress_us_(now_us) {}

CoordinatorDecisions Coordination::on_join(PeerNumber peer, JoinRequest request, uint64_t now_us) {
  for (const auto& [id, member] : members_) {
    if (member.peer == peer) return drop();
  }
  if (phase_ != Phase::kGathering) {
    return {RefusePeer{peer, absl::StrCat("the job already runs with ", members_.size(),
                                          " workers; joining a running job is not possible yet")}};
  }
  const WorkerId worker{++last_worker_};
  CoordinatorDecisions decisions = {WelcomeWorker{peer, worker}};
  decisions.push_back(RunEvent{"worker.joined",
                               absl::StrCat("w", worker.value, " joined (", request.device, " on ",
                                            request.host_name, ", pid ", request.process_id, "), ",
                                            members_.size() + 1, "/", options_.worker_count),
                               {{"worker", absl::StrCat(worker.value)},
                                {"host", request.host_name},
                                {"pid", absl::StrCat(request.process_id)},
                                {"device", request.device}}});
  members_[worker] = Member{peer, worker, std::move(request), now_us, 0, false};
  last_progress_us_ = now_us;
  if (static_cast<int64_t>(members_.size()) == options_.worker_count) {
    append(decisions, on_gathered(now_us));
  }
  return decisions;
}

CoordinatorDecisions Coordination::on_gathered(uint64_t now_us) {
  const bool chooses =
      !options_.plan && options_.job.parallelism.pipeline_parallel_degree == kAutoDegree;
  if (!chooses && !options_.only_profiles) return make_assignment(now_us);
  phase_ = Phase::kProfiling;
  CoordinatorDecisions decisions = {
      RunEvent{"profile.started",
               absl::StrCat("measuring ", members_.size(), " devices and the links between them"),
               {}}};
  for (const auto& [id, member] : members_) decisions.push_back(RequestProfile{id, {}});
  append(decisions, request_profiles());
  return decisions;
}

/// Asks one worker of each host that has nobody at work: they would disturb each other.
CoordinatorDecisions Coordination::request_profiles() {
  std::set<std::string> busy;
  for (const auto& [id, member] : members_) {
    if (member.profiling) busy.insert(member.request.host_name);
  }
  CoordinatorDecisions decisions;
  for (auto& [id, member] : members_) {
    if (member.measured || member.profiling || !busy.insert(member.request.host_name).second) {
      continue;
    }
    member.profiling = true;
    decisions.push_back(RequestProfile{id, rows_to_measure(options_.job)});
  }
  return decisions;
}

CoordinatorDecisions Coordination::on_profiled(WorkerId worker, MeasuredWorker measured,
                                               uint64_t now_us) {
  auto member = members_.find(worker);
  if (phase_ != Phase::kProfiling || member == members_.end() || !member->second.profiling) {
    return drop();
  }
  measured.id = worker;
  measured.host = member->second.request.host_name;
  member->second.profiling = false;
  member->second.measured = std::move(measured);
  last_progress_us_ = now_us;
  CoordinatorDecisions decisions = request_profiles();
  const bool all = std::all_of(members_.begin(), members_.end(),
                               [](const auto& each) { return each.second.measured.has_value(); });
  if (!all) return decisions;
  const std::vector<MeasuredWorker> workers = measured_workers();
  decisions.push_back(
      ReportProfiles{workers.front().profile, measured_cluster(options_.job, workers)});
  append(decisions,
         options_.only_profiles ? end(absl::OkStatus(), false) : make_assignment(now_us));
  return decisions;
}

std::vector<MeasuredWorker> Coordination::measured_workers() const {
  std::vector<MeasuredWorker> workers;
  for (const auto& [id, member] : members_) {
    if (member.measured) workers.push_back(*member.measured);
  }
  return workers;
}

absl::StatusOr<PlannedPipeline> Coordination::choose_plan(
    const std::vector<WorkerId>& workers) const {
  constexpr uint64_t kGeneration = 1;
  PlannedPipeline chosen;
  if (options_.plan) {
    chosen.reason = "plan of the job";
    SKEIN_ASSIGN_OR_RETURN(chosen.plan,
                           adopt_plan(options_.job, *options_.plan, workers, kGeneration));
  } else if (options_.job.parallelism.pipeline_parallel_degree == kAutoDegree) {
    SKEIN_ASSIGN_OR_RETURN(
        chosen, planners().front().make_plan(measured_request(options_.job, measured_workers())));
    SKEIN_ASSIGN_OR_RETURN(chosen.plan,
                           adopt_plan(options_.job, std::move(chosen.plan), workers, kGeneration));
  } else {
    chosen.reason = "layout of the job";
    SKEIN_ASSIGN_OR_RETURN(chosen.plan, make_layout_plan(options_.job, workers, kGeneration));
  }
  return chosen;
}

CoordinatorDecisions Coordination::make_assignment(uint64_t now_us) {
  std::vector<WorkerId> workers;
  for (const auto& [id, member] : members_) workers.push_back(id);
  absl::StatusOr<PlannedPipeline> chosen = choose_plan(workers);
  if (!chosen.ok()) return end(chosen.status(), false);
  plan_ = chosen->plan;
  for (const StagePlan& stage : plan_->stages) {
    for (const ReplicaPlan& replica : stage.replicas) hosted_[replica.worker].insert(replica.id);
  }
  phase_ = Phase::kPreparing;
  last_progress_us_ = now_us;
  CoordinatorDecisions decisions;
  std::vector<std::string> shape;
  for (const StagePlan& stage : plan_->stages) {
    shape.push_back(absl::StrCat(stage.layers.size(), "x", stage.replicas.size()));
  }
  decisions.push_back(
      RunEvent{"plan.made",
               absl::StrCat("plan ", plan_->generation, ": ", plan_->stages.size(),
                            " stages (layers x replicas ", absl::StrJoin(shape, " | "), "), ",
                            std::string(to_text(plan_->schedule)), ", ", plan_->microbatch_count,
                            " micro-batches of ", plan_->microbatch_rows),
               {{"generation", absl::StrCat(plan_->generation)},
                {"stages", absl::StrCat(plan_->stages.size())},
                {"predicted_step_us", absl::StrCat(chosen->objective_us)},
                {"reason", chosen->reason}}});
  decisions.push_back(AssignPlan{*plan_, step_, chosen->objective_us});
  return decisions;
}

CoordinatorDecisions Coordination::on_prepared(WorkerId worker, uint64_t generation,
                                               uint64_t now_us) {
  auto member = members_.find(worker);
  if (phase_ != Phase::kPreparing || generation != plan_->generation || member == members_.end() ||
      member->second.prepared) {
    return drop();
  }
  member->second.prepared = true;
  last_progress_us_ = now_us;
  for (const auto& [id, replicas] : hosted_) {
    if (!members_.at(id).prepared) return {};
  }
  phase_ = Phase::kTraining;
  last_step_end_us_ = now_us;
  CoordinatorDecisions decisions = {StartRun{}};
  decisions.push_back(RunEvent{
      "run.started",
      absl::StrCat("training starts at step ", step_ + 1, " of ", options_.job.training.steps),
      {{"step", absl::StrCat(step_ + 1)}}});
  return decisions;
}

CoordinatorDecisions Coordination::on_ready(const ReadyReport& report, uint64_t now_us) {
  if (phase_ != Phase::kTraining || report.step != step_ || journaling_ ||
      static_cast<int64_t>(report.replica.value) >= replica_count(*plan_) ||
      !ready_.emplace(report.replica, report).second) {
    return drop();
  }
  last_ready_us_ = now_us;
  if (!report.needs_groups) reduced_[report.replica] = Reduction{true, report.norm_squared};
  return try_commit();
}

CoordinatorDecisions Coordination::on_reduced(ReplicaId replica, uint64_t step,
                                              double norm_squared) {
  if (phase_ != Phase::kTraining || step != step_ || journaling_ || !ready_.contains(replica) ||
      reduced_.contains(replica)) {
    return drop();
  }
  reduced_[replica] = Reduction{true, norm_squared};
  return try_commit();
}

CoordinatorDecisions Coordination::try_commit() {
  if (static_cast<int64_t>(reduced_.size()) < replica_count(*plan_)) return {};
  CommitRecord record;
  record.step = step_;
  record.generation = plan_->generation;
  record.term = options_.term;
  record.sample_count = static_cast<uint64_t>(options_.job.training.global_batch_size);
  record.first_sample = first_sample(step_, record.sample_count);
  double norm_squared = 0;
  for (const StagePlan& stage : plan_->stages) {
    norm_squared += reduced_.at(stage.replicas.front().id).norm_squared;
  }
  record.gradient_norm = std::sqrt(norm_squared);
  double loss_sum = 0;
  uint64_t loss_tokens = 0;
  for (const auto& [replica, report] : ready_) {
    loss_sum += report.loss_sum;
    loss_tokens += report.loss_tokens;
  }
  record.loss = loss_tokens == 0 ? 0 : loss_sum / static_cast<double>(loss_tokens);
  if (!std::isfinite(record.loss) || !std::isfinite(record.gradient_norm)) {
    return end(
        absl::FailedPreconditionError(absl::StrCat(
            "step ", step_ + 1, ": loss ", record.loss, ", gradient norm ", record.gradient_norm,
            ": the training diverged and the step was not applied; lower optimizer.lr or "
            "lengthen lr_scheduler.warmup_steps, and go on from the last checkpoint")),
        false);
  }
  journaling_ = record;
  return {JournalCommit{record}};
}

CommitOrder Coordination::make_order() const {
  CommitOrder order;
  const uint64_t done = step_ + 1;
  order.step = step_;
  order.gradient_norm = journaling_->gradient_norm;
  order.last = stop_requested_ || done >= static_cast<uint64_t>(options_.job.training.steps);
  const bool ends_job = done >= static_cast<uint64_t>(options_.job.training.steps);
  order.validate = options_.job.validation.batches > 0 &&
                   (ends_job || (!order.last && is_due(options_.job.validation.interval, done)));
  order.checkpoint = options_.job.checkpoint.enable &&
                     (order.last || is_due(options_.job.checkpoint.interval, done));
  return order;
}

BroadcastCommit Coordination::make_broadcast(const CommitOrder& order, uint64_t now_us) const {
  BroadcastCommit commit;
  commit.order = order;
  // Steps are counted from 1 for people: the first profiled one is the second, when all is warm.
  commit.profile =
      options_.job.profiling.enable_profiling && !order.last &&
      (step_ == options_.first_step || is_due(options_.job.profiling.profile_freq, step_ + 1));
  commit.loss = journaling_->loss;
  commit.step_seconds = static_cast<double>(now_us - last_step_end_us_) * kMicro;
  commit.control_seconds = static_cast<double>(now_us - last_ready_us_) * kMicro;
  commit.samples = journaling_->sample_count;
  commit.tokens = commit.samples * static_cast<uint64_t>(options_.job.training.seq_len);
  for (const StagePlan& stage : plan_->stages) {
    double busy = 0;
    uint32_t stash = 0;
    for (const ReplicaPlan& replica : stage.replicas) {
      const ReadyReport& report = ready_.at(replica.id);
      busy += static_cast<double>(report.busy_us) * kMicro;
      stash = std::max(stash, report.stash_peak);
    }
    commit.stage_busy_seconds.push_back(busy / static_cast<double>(stage.replicas.size()));
    commit.stage_stash_peak.push_back(stash);
  }
  return commit;
}

CoordinatorDecisions Coordination::on_journaled(uint64_t step, uint64_t now_us) {
  if (phase_ != Phase::kTraining || !journaling_ || journaling_->step != step) return drop();
  const CommitOrder order = make_order();
  CoordinatorDecisions decisions = {make_broadcast(order, now_us)};
  if (order.validate) validations_[step_].started_us = now_us;
  if (order.checkpoint) checkpoints_[step_ + 1].loss = journaling_->loss;
  last_loss_ = journaling_->loss;
  journaling_.reset();
  ready_.clear();
  reduced_.clear();
  ++step_;
  last_progress_us_ = now_us;
  last_step_end_us_ = now_us;
  if (order.last) {
    phase_ = Phase::kFinishing;
    append(decisions, try_finish());
  }
  return decisions;
}

CoordinatorDecisions Coordination::on_validated(ReplicaId replica, uint64_t step, double loss_sum,
                                                uint64_t loss_tokens, uint64_t now_us) {
  auto found = validations_.find(step);
  if (phase_ == Phase::kEnded || found == validations_.end() ||
      !found->second.reported.insert(replica).second) {
    return drop();
  }
  Validation& validation = found->second;
  validation.loss_sum += loss_sum;
  validation.loss_tokens += loss_tokens;
  last_progress_us_ = now_us;
  last_step_end_us_ = now_us;  // The pass is no part of the next step's time.
  if (validation.reported.size() < plan_->stages.back().replicas.size()) return {};
  const double tokens = static_cast<double>(std::max<uint64_t>(1, validation.loss_tokens));
  CoordinatorDecisions decisions = {
      ReportValidation{step, validation.loss_sum / tokens, validation.loss_tokens,
                       static_cast<double>(now_us - validation.started_us) * kMicro}};
  validations_.erase(found);
  append(decisions, try_finish());
  return decisions;
}

CoordinatorDecisions Coordination::on_shard_saved(int32_t stage, uint64_t steps_done,
                                                  uint64_t now_us) {
  auto found = checkpoints_.find(steps_done);
  if (phase_ == Phase::kEnded || found == checkpoints_.end() ||
      !found->second.stages.insert(stage).second) {
    return drop();
  }
  last_progress_us_ = now_us;
  if (found->second.stages.size() < plan_->stages.size()) return {};
  return {CompleteCheckpoint{steps_done, found->second.loss}};
}

CoordinatorDecisions Coordination::on_checkpoint_completed(uint64_t steps_done,
                                                           const absl::Status& status) {
  if (phase_ == Phase::kEnded || checkpoints_.erase(steps_done) == 0) return drop();
  if (!status.ok()) return end(status, false);
  return try_finish();
}

CoordinatorDecisions Coordination::try_finish() {
  if (phase_ != Phase::kFinishing || !validations_.empty() || !checkpoints_.empty()) return {};
  const bool early = step_ < static_cast<uint64_t>(options_.job.training.steps);
  return end(absl::OkStatus(), early);
}

CoordinatorDecisions Coordination::on_heartbeat(WorkerId worker, uint64_t steps_done,
                                                uint64_t now_us) {
  auto member = members_.find(worker);
  if (member == members_.end()) return drop();
  member->second.last_heard_us = now_us;
  member->second.steps_done = std::max(member->second.steps_done, steps_done);
  return {};
}

CoordinatorDecisions Coordination::on_worker_lost(WorkerId worker, const absl::Status& why) {
  auto member = members_.find(worker);
  if (phase_ == Phase::kEnded || member == members_.end()) return drop();
  const std::string who = describe(worker);
  CoordinatorDecisions decisions = {
      RunEvent{"worker.lost",
               absl::StrCat(who, " lost at step ", step_ + 1, ": ", why.message()),
               {{"worker", absl::StrCat(worker.value)},
                {"step", absl::StrCat(step_ + 1)},
                {"reason", std::string(why.message())}}}};
  const bool is_needed = hosted_.contains(worker);
  members_.erase(member);
  if (!is_needed) return decisions;
  append(decisions, end(absl::Status(why.code(), absl::StrCat(who, " failed at step ", step_ + 1,
                                                              ": ", why.message())),
                        false));
  return decisions;
}

CoordinatorDecisions Coordination::on_fault(const absl::Status& why) {
  return phase_ == Phase::kEnded ? drop() : end(why, false);
}

CoordinatorDecisions Coordination::on_stop_request(const std::string& reason) {
  if (phase_ == Phase::kEnded || stop_requested_) return drop();
  stop_requested_ = true;
  stop_reason_ = reason;
  CoordinatorDecisions decisions = {
      RunEvent{"run.stopping",
               absl::StrCat("stopping at the next step boundary: ", reason),
               {{"reason", reason}}}};
  const bool untrained = phase_ < Phase::kTraining;
  if (untrained) append(decisions, end(absl::OkStatus(), true));
  return decisions;
}

CoordinatorDecisions Coordination::on_timer(uint64_t now_us) {
  if (phase_ == Phase::kEnded) return {};
  const double lease_us = options_.job.elastic.heartbeat_timeout_seconds / kMicro;
  for (const auto& [id, member] : members_) {
    const double silent_us = static_cast<double>(now_us - member.last_heard_us);
    if (now_us > member.last_heard_us && silent_us > lease_us) {
      return on_worker_lost(
          id, absl::UnavailableError(absl::StrCat("no heartbeat for ", silent_us * kMicro,
                                                  " s (elastic.heartbeat_timeout_seconds)")));
    }
  }
  const bool starts = phase_ < Phase::kTraining;
  const double limit_s =
      starts ? options_.job.comm.init_timeout_seconds : options_.job.comm.train_timeout_seconds;
  const double waited_s = static_cast<double>(now_us - last_progress_us_) * kMicro;
  if (now_us <= last_progress_us_ || waited_s <= limit_s) return {};
  if (phase_ == Phase::kGathering) {
    return end(absl::DeadlineExceededError(absl::StrCat(
                   members_.size(), " of ", options_.worker_count, " workers joined within ",
                   limit_s, " s (comm.init_timeout_seconds); start more workers or ask for fewer")),
               false);
  }
  return end(absl::DeadlineExceededError(
                 absl::StrCat("no progress for ", waited_s, " s at step ", step_ + 1, " (",
                              starts ? "comm.init_timeout_seconds" : "comm.train_timeout_seconds",
                              "); waiting for ", missing_replicas())),
             false);
}

std::string Coordination::missing_replicas() const {
  std::vector<std::string> missing;
  for (const auto& [id, member] : members_) {
    if (member.profiling) missing.push_back(absl::StrCat("the measurements of w", id.value));
  }
  for (const auto& [worker, replicas] : hosted_) {
    for (ReplicaId replica : replicas) {
      const bool waits =
          phase_ == Phase::kPreparing ? !members_.at(worker).prepared : !reduced_.contains(replica);
      if (waits) {
        missing.push_back(absl::StrCat("stage ", stage_of(*plan_, replica), " on w", worker.value));
      }
    }
  }
  return absl::StrJoin(missing, ", ");
}

std::string Coordination::describe(WorkerId worker) const {
  const JoinRequest& request = members_.at(worker).request;
  std::string text =
      absl::StrCat("w", worker.value, " (pid ", request.process_id, " on ", request.host_name);
  auto hosted = hosted_.find(worker);
  if (hosted != hosted_.end() && plan_) {
    absl::StrAppend(&text, ", stage ", stage_of(*plan_, *hosted->second.begin()));
  }
  return absl::StrCat(text, ")");
}

CoordinatorDecisions Coordination::end(absl::Status status, bool stopped_early) {
  phase_ = Phase::kEnded;
  const std::string reason = !status.ok()    ? std::string(status.message())
                             : stopped_early ? stop_reason_
                                             : "done";
  return {StopWorkers{reason}, EndRun{std::move(status), stopped_early}};
}

CoordinatorDecisions Coordination::drop() {
  ++dropped_;
  return {};
}

}  // namespace skein::plans
