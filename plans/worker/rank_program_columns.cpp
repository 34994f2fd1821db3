// What a rank of a column of its own pace does apart from others: leases, own commits, groups.

#include <utility>

#include "plans/worker/rank_program.hpp"

namespace skein::plans {

bool RankProgram::may_begin(uint64_t step) const {
  if (!options_.is_column || given_) return false;
  if (mode_ == Mode::kPause) return step == step_ && !awaits_commit_ && combining_.empty();
  if (mode_ == Mode::kValidate) return step == step_;
  return mode_ == Mode::kUpdate && !next_ && step == step_ + 1;
}

RankCommands RankProgram::on_lease(uint64_t step, const SampleLease& lease) {
  if (!may_begin(step)) return drop();
  if (mode_ == Mode::kPause) return begin_leased(lease);
  given_ = lease;
  return {};
}

RankCommands RankProgram::on_column_commit(uint64_t step, double gradient_norm,
                                           const std::optional<SampleLease>& next) {
  if (!options_.is_column || mode_ != Mode::kWait || step != step_) return drop();
  mode_ = Mode::kUpdate;
  next_ = next;
  is_common_ = false;
  RunUpdate update;
  update.commit.step = lease_.first / options_.samples_per_step;
  update.commit.gradient_norm = gradient_norm;
  running_.push_back(update);
  return {running_.back()};
}

RankCommands RankProgram::on_combine(const CombineOrder& order) {
  if (order.number <= newest_[order.stage]) return drop();
  // Who has no samples in a segment may still validate when the others have done theirs.
  const bool validates = mode_ == Mode::kValidate && order.is_closing;
  const bool is_early =
      (mode_ == Mode::kUpdate && order.is_closing == !next_.has_value()) || validates;
  if (options_.is_column && is_early) {
    newest_[order.stage] = order.number;
    early_.push_back(order);
    return {};
  }
  const bool is_awaited = order.is_closing
                              ? mode_ == Mode::kPause && !awaits_commit_
                              : mode_ == Mode::kCombine && uncombined_.contains(order.stage);
  if (!is_awaited || combining_.contains(order.stage)) return drop();
  newest_[order.stage] = order.number;
  RankCommands commands;
  combine(order, commands);
  if (mode_ != Mode::kCombine || !uncombined_.empty()) return commands;
  return end_combining();
}

RankCommands RankProgram::on_combined(int32_t stage, uint64_t number, bool ok) {
  const auto found = combining_.find(stage);
  if (found == combining_.end() || found->second.number != number) return drop();
  const CombineOrder order = found->second;
  combining_.erase(found);
  if (!order.is_closing) {
    uncombined_.erase(stage);
    return uncombined_.empty() ? end_combining() : RankCommands();
  }
  if (!order.is_common) return {};
  if (ok) uncombined_.erase(stage);
  if (!uncombined_.empty()) return {};
  common_steps_ = order.steps_done;
  is_common_ = awaits_commit_ = true;
  return {};
}

RankCommands RankProgram::begin_leased(const SampleLease& lease) {
  lease_ = lease;
  uncombined_.clear();
  return begin_step();
}

RankCommands RankProgram::begin_combining() {
  mode_ = Mode::kCombine;
  for (const StageRole& each : options_.stages) uncombined_.insert(each.stage);
  RankCommands commands;
  for (const CombineOrder& order : std::exchange(early_, {})) combine(order, commands);
  return uncombined_.empty() ? end_combining() : commands;
}

void RankProgram::combine(const CombineOrder& order, RankCommands& commands) {
  if (order.is_alone) {
    uncombined_.erase(order.stage);
    return;
  }
  if (order.is_closing) is_common_ = false;  // Until all stages have the common mean.
  combining_[order.stage] = order;
  commands.push_back(RunCombination{order.stage, order.number, order.is_common});
}

/// On to the next step, if there are samples for it.
RankCommands RankProgram::end_combining() {
  ++step_;
  if (!next_) return pause();
  return begin_leased(*std::exchange(next_, std::nullopt));
}

RankCommands RankProgram::pause() {
  mode_ = Mode::kPause;
  if (given_) return begin_leased(*std::exchange(given_, std::nullopt));
  for (const StageRole& each : options_.stages) uncombined_.insert(each.stage);
  RankCommands commands;
  for (const CombineOrder& order : std::exchange(early_, {})) combine(order, commands);
  return commands;
}

}  // namespace skein::plans
