#include "plans/worker/commit_duties.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {

/// A neighbour that has started may be at what was left to do of the step before the first one.
CommitDuties::CommitDuties(Options options)
    : options_(std::move(options)),
      step_min_(options_.first_step > 0 ? options_.first_step - 1 : 0) {
  for (const StageRole& each : options_.stages) {
    if (each.validates) validating_.push_back(each);
  }
}

size_t CommitDuties::most_inputs() const {
  size_t most = 0;
  for (const StageRole& each : validating_) most += 2 * static_cast<size_t>(pieces_of(each));
  return most;
}

ProgramCommands CommitDuties::begin(const CommitOrder& order, uint64_t steps_done) {
  SKEIN_CHECK(!is_under_way_) << "the duties of " << steps_done << " steps come during others";
  is_under_way_ = true;
  step_ = steps_done > 0 ? steps_done - 1 : 0;
  leave_behind(step_);
  ProgramCommands commands;
  for (const StageRole& each : options_.stages) {
    if (order.snapshot && each.leads) commands.push_back(KeepSnapshot{steps_done, each.stage});
  }
  for (const StageRole& each : options_.stages) {
    if (order.checkpoint && each.leads) commands.push_back(SaveState{steps_done, each.stage});
  }
  microbatch_ = 0;
  role_ = 0;
  if (order.validate && options_.validation_batches > 0 && !validating_.empty()) {
    append(commands, advance());
  } else {
    is_under_way_ = false;
    leave_behind(steps_done);
  }
  return commands;
}

ProgramOutcome CommitDuties::on_input(const InputKey& key) {
  const bool is_taken =
      std::any_of(validating_.begin(), validating_.end(), [&](const StageRole& each) {
        return each.stage == key.stage && !each.is_first && key.microbatch < pieces_of(each);
      });
  if (!is_taken || key.microbatch < 0) {
    return Dropped{DropReason::kOutOfBounds};
  }
  if (key.step < step_min_) return Dropped{DropReason::kStale};
  if (inputs_.size() >= most_inputs()) return Dropped{DropReason::kOutOfBounds};
  if (!inputs_.insert(key).second) return Dropped{DropReason::kRepeated};
  return is_under_way_ && !is_working_ ? advance() : ProgramCommands();
}

ProgramCommands CommitDuties::on_work_done() {
  SKEIN_CHECK(is_working_) << "a validation ended that was not started";
  is_working_ = false;
  ++microbatch_;
  return advance();
}

ProgramCommands CommitDuties::advance() {
  ProgramCommands commands;
  if (microbatch_ == pieces_of(validating_[role_])) {
    const StageRole& ended = validating_[role_++];
    microbatch_ = 0;
    if (ended.is_last) commands.push_back(SendValidated{step_, ended.stage});
    is_under_way_ = role_ < validating_.size();
    if (!is_under_way_) {
      leave_behind(step_ + 1);
      return commands;
    }
  }
  const StageRole& own = validating_[role_];
  const InputKey input{InputKind::kValidation, step_, own.stage, microbatch_};
  if (!own.is_first && inputs_.erase(input) == 0) return commands;
  is_working_ = true;
  commands.push_back(RunValidation{step_, own.stage, microbatch_, microbatch_ == 0});
  return commands;
}

void CommitDuties::leave_behind(uint64_t step) {
  step_min_ = step;
  std::erase_if(inputs_, [&](const InputKey& key) { return key.step < step; });
}

void CommitDuties::check_invariants() const {
  SKEIN_CHECK(is_under_way_ || !is_working_) << "a validation runs that nobody ordered";
  SKEIN_CHECK(!is_under_way_ || (role_ < validating_.size() &&
                                 microbatch_ < pieces_of(validating_[role_]) && step_ == step_min_))
      << "validates micro-batch " << microbatch_ << " of role " << role_;
  for (const InputKey& key : inputs_) {
    SKEIN_CHECK(key.kind == InputKind::kValidation && key.step >= step_min_)
        << "an input of step " << key.step << ", validated up to " << step_min_;
  }
}

}  // namespace skein::plans
