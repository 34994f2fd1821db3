#include "plans/coordinator/coordination.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/plan/layout_plan.hpp"
#include "plans/sync/policy_kind.hpp"

namespace skein::plans {

Coordination::Coordination(Options options, uint64_t now_us)
    : options_(std::move(options)),
      generation_(options_.generation),
      plan_(options_.last_plan),
      commits_(options_.job, options_.term,
               {options_.committed_steps, options_.committed_norm, options_.durable_step,
                options_.generations}),
      in_columns_(begins_in_columns(options_.job)),
      last_progress_us_(now_us) {
  goodput_.begin(now_us);
  const bool may_change = may_run_columns(options_.job) && !in_columns_;
  if (plan_ && may_change) in_columns_ = plan_->in_columns;
  // A layout that follows the number of workers does not say how many there were.
  if (plan_) options_.worker_count = std::max(options_.worker_count, plans::worker_count(*plan_));
}

CoordinatorDecisions Coordination::on_ready(const ReadyReport& report, uint64_t now_us) {
  if (phase_ != Phase::kTraining || halt_after_journal_) return drop();
  if (columns_) return follow_columns(columns_->on_ready(report), now_us);
  return follow(commits_.on_ready(report, now_us), now_us);
}

CoordinatorDecisions Coordination::on_reduced(ReplicaId replica, uint64_t step, double norm_squared,
                                              uint64_t now_us) {
  if (phase_ != Phase::kTraining || halt_after_journal_) return drop();
  return follow(commits_.on_reduced(replica, step, norm_squared), now_us);
}

CoordinatorDecisions Coordination::on_journaled(uint64_t step, uint64_t now_us) {
  if (phase_ != Phase::kTraining) return drop();
  CoordinatorDecisions decisions = commits_.on_journaled(step, now_us);
  if (decisions.empty()) return decisions;
  last_progress_us_ = now_us;
  goodput_.on_commit(step, now_us);
  append(decisions, watch_speeds());
  append(decisions, watch_sync());
  if (halt_after_journal_) {
    append(decisions, begin_halt(*std::exchange(halt_after_journal_, std::nullopt), now_us));
  } else if (commits_.is_held() && (commits_.is_complete() || stop_requested_) &&
             !(columns_ && columns_->has_lost())) {
    phase_ = Phase::kFinishing;
    append(decisions, try_finish());
  } else if (commits_.is_held()) {
    append(decisions, begin_halt(change_reason_, now_us));
  } else if (columns_ && !in_columns_) {
    append(decisions, begin_halt(change_reason_, now_us));
  } else if (columns_) {
    append(decisions, begin_segment());
  }
  return decisions;
}

CoordinatorDecisions Coordination::on_validated(ReplicaId replica, uint64_t step, double loss_sum,
                                                uint64_t loss_tokens, uint64_t now_us) {
  if (phase_ != Phase::kTraining && phase_ != Phase::kFinishing) return drop();
  return follow(commits_.on_validated(replica, step, loss_sum, loss_tokens, now_us), now_us);
}

CoordinatorDecisions Coordination::on_shard_saved(int32_t stage, uint64_t steps_done,
                                                  const absl::Status& status, uint64_t now_us) {
  if (phase_ != Phase::kTraining && phase_ != Phase::kFinishing) return drop();
  if (!status.ok()) return on_checkpoint_completed(steps_done, status);
  return follow(commits_.on_shard_saved(stage, steps_done), now_us);
}

CoordinatorDecisions Coordination::on_checkpoint_completed(uint64_t steps_done,
                                                           const absl::Status& status) {
  if (phase_ == Phase::kEnded || !commits_.on_checkpoint_completed(steps_done, status.ok())) {
    return drop();
  }
  if (status.ok()) return try_finish();
  if (phase_ == Phase::kFinishing && steps_done == commits_.steps_done()) return end(status, false);
  CoordinatorDecisions decisions = {RunEvent{
      "checkpoint.failed",
      absl::StrCat("the checkpoint of step ", steps_done, " is not written: ",
                   std::string(status.message()), "; training goes on, and the one before stays"),
      {{"step", absl::StrCat(steps_done)}, {"reason", std::string(status.message())}}}};
  append(decisions, try_finish());
  return decisions;
}

CoordinatorDecisions Coordination::on_snapshot_kept(WorkerId worker, int32_t stage,
                                                    uint64_t steps_done) {
  if (phase_ != Phase::kTraining) return drop();
  commits_.on_snapshot_kept(worker, stage, steps_done);
  return {};
}

/// Or prepares it.
bool Coordination::runs_plan() const {
  return phase_ == Phase::kTraining || phase_ == Phase::kFinishing || phase_ == Phase::kPreparing;
}

/// What follows for the run from what the commit loop has decided.
CoordinatorDecisions Coordination::follow(CoordinatorDecisions decisions, uint64_t now_us) {
  last_progress_us_ = now_us;
  for (const CoordinatorDecision& decision : decisions) {
    if (const auto* ends = std::get_if<EndRun>(&decision)) return end(ends->status, false);
  }
  append(decisions, try_finish());
  return decisions;
}

CoordinatorDecisions Coordination::try_finish() {
  if (phase_ != Phase::kFinishing || !commits_.is_idle()) return {};
  return end(absl::OkStatus(), !commits_.is_complete());
}

CoordinatorDecisions Coordination::on_fault(const absl::Status& why) {
  return phase_ == Phase::kEnded ? drop() : end(why, false);
}

CoordinatorDecisions Coordination::on_stop_request(const std::string& reason) {
  if (phase_ == Phase::kEnded || stop_requested_) return drop();
  stop_requested_ = true;
  stop_reason_ = reason;
  commits_.stop();
  if (columns_) columns_->cut_short();
  CoordinatorDecisions decisions = {
      RunEvent{"run.stopping",
               absl::StrCat("stopping at the next step boundary: ", reason),
               {{"reason", reason}}}};
  // A change of plan on its way is waited for: its workers hold what is to be saved.
  const bool changes = phase_ == Phase::kHalting || phase_ == Phase::kPreparing;
  const bool runs = phase_ == Phase::kTraining || phase_ == Phase::kFinishing;
  if (!runs && !(changes && has_trained_)) append(decisions, end(absl::OkStatus(), true));
  return decisions;
}

CoordinatorDecisions Coordination::on_timer(uint64_t now_us) {
  CoordinatorDecisions decisions = lose_silent(now_us);
  append(decisions, lose_slow_to_answer(now_us));
  append(decisions, check_troubles(now_us));
  append(decisions, check_change(now_us));
  append(decisions, try_gather(now_us));
  append(decisions, check_progress(now_us));
  return decisions;
}

CoordinatorDecisions Coordination::end(absl::Status status, bool stopped_early) {
  if (phase_ == Phase::kEnded) return {};
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
