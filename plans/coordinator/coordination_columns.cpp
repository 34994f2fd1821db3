// Columns of their own pace: segments, losses within them, changes of plan between them.

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plans/coordinator/coordination.hpp"
#include "plans/plan/column_plan.hpp"
#include "plans/sync/policy_kind.hpp"

namespace skein::plans {

CoordinatorDecisions Coordination::begin_segment() {
  const uint64_t first = commits_.steps_done();
  return columns_->begin_segment(first, commits_.segment_end(options_.job.sync.segment_steps));
}

CoordinatorDecisions Coordination::on_group_start(const GroupStart& start, uint64_t now_us) {
  if (phase_ != Phase::kTraining || !columns_) return drop();
  return follow_columns(columns_->on_group_start(start), now_us);
}

CoordinatorDecisions Coordination::on_combined(ReplicaId replica, uint64_t number, bool ok,
                                               uint64_t now_us) {
  if (phase_ != Phase::kTraining || !columns_) return drop();
  return follow_columns(columns_->on_combined(replica, number, ok), now_us);
}

CoordinatorDecisions Coordination::follow_columns(CoordinatorDecisions decisions, uint64_t now_us) {
  if (columns_->has_failed()) {
    append(decisions, begin_halt("no column can end the segment", now_us));
  } else if (columns_->take_end()) {
    append(decisions, commits_.on_segment(columns_->end_step(), columns_->totals(), now_us));
  }
  return follow(std::move(decisions), now_us);
}

/// The others go on, and make a new plan when they meet, which is soon.
CoordinatorDecisions Coordination::lose_column(WorkerId worker, uint64_t now_us) {
  // That explains what it was part of; columns that do not know it may be in trouble as well.
  std::erase_if(troubles_, [&](const auto& each) {
    return each.first.first == worker || each.first.second == worker;
  });
  CoordinatorDecisions decisions = columns_->lose(worker);
  hold_for_change(absl::StrCat("w", worker.value, " is lost"));
  return follow_columns(std::move(decisions), now_us);
}

/// The next commit is the last one of the plan.
void Coordination::hold_for_change(const std::string& reason) {
  change_reason_ = reason;
  commits_.hold();
  if (columns_) columns_->cut_short();
}

void Coordination::begin_sync_watch() {
  constexpr uint32_t kDoublingsMax = 5;
  sync_watch_.reset();
  const JobSpec& job = options_.job;
  if (!may_run_columns(job) || begins_in_columns(job) || !has_columns(*plan_)) return;
  const auto local_steps = static_cast<uint64_t>(job.sync.local_steps);
  SyncWatchOptions options;
  options.chooser.is_adaptive = job.optimizer.name == "adamw";
  options.local_steps = {local_steps};
  options.steps_left_out = 1;
  // Who comes and goes does so ever more rarely, as each change costs something.
  options.steps_between_looks <<= std::min(sync_changes_, kDoublingsMax);
  const SyncCandidate now{plan_->in_columns ? local_steps : 0};
  sync_watch_.emplace(column_layout(*plan_), options, now);
}

/// After a step, or a segment of columns: whether columns should have a pace of their own from the
/// next plan on, or should not any more.
CoordinatorDecisions Coordination::watch_sync() {
  if (!sync_watch_ || commits_.is_held() || halt_after_journal_ || stop_requested_) return {};
  if (columns_) {
    for (const ColumnIteration& each : columns_->iterations()) {
      sync_watch_->on_step(each.column, each.step_us());
    }
  } else {
    const ColumnLayout layout = column_layout(*plan_);
    std::vector<uint64_t> step_us(layout.columns);
    for (const auto& [replica, report] : commits_.last_reports()) {
      uint64_t& longest = step_us[layout.column_of(replica)];
      longest = std::max(longest, report.step_us);
    }
    for (uint32_t column = 0; column < layout.columns; ++column) {
      sync_watch_->on_step(column, step_us[column]);
    }
    const double slowest_us =
        static_cast<double>(*std::max_element(step_us.begin(), step_us.end()));
    sync_watch_->on_added(
        static_cast<uint64_t>(std::max(0.0, commits_.last_step_us() - slowest_us)));
  }
  const std::optional<SyncChoice> choice = sync_watch_->look();
  if (!choice) return {};
  in_columns_ = choice->candidate.runs_columns();
  ++sync_changes_;
  hold_for_change(in_columns_ ? "columns go at their own pace" : "all do every step together");
  return {RunEvent{"sync.changed", choice->reason, {{"why", choice->reason}}}};
}

}  // namespace skein::plans
