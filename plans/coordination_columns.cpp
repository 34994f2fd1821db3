// Columns of their own pace: segments, losses within them, changes of plan between them.

#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/coordination.hpp"

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

}  // namespace skein::plans
