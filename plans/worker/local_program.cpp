#include "plans/worker/local_program.hpp"

#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {

LocalProgram::LocalProgram(ProgramOptions options)
    : samples_per_step_(options.samples_per_step),
      stages_(options.stages),
      pass_({options.actions, options.stages, 0}),
      duties_({options.stages, options.validation_batches, options.first_step}),
      steps_done_(options.first_step) {}

ProgramOutcome LocalProgram::on_start(const CommitOrder& left) {
  if (phase_ != Phase::kIdle) return Dropped{DropReason::kRepeated};
  return begin_duties(left);
}

ProgramOutcome LocalProgram::on_input(const InputKey& key) {
  if (is_finished()) return Dropped{DropReason::kUnexpected};
  if (key.kind != InputKind::kValidation) return pass_.on_input(key);
  ProgramOutcome outcome = duties_.on_input(key);
  if (outcome.is_dropped() || phase_ != Phase::kDuties) return outcome;
  ProgramCommands commands = std::move(outcome).decisions();
  append(commands, end_duties());
  return commands;
}

ProgramCommands LocalProgram::on_work_done() {
  if (phase_ == Phase::kPass) return pass_.on_work_done();
  if (phase_ == Phase::kUpdate) return next_ ? begin_averaging() : end_step();
  SKEIN_CHECK(phase_ == Phase::kDuties) << "work ended that was not started";
  ProgramCommands commands = duties_.on_work_done();
  append(commands, end_duties());
  return commands;
}

ProgramOutcome LocalProgram::on_commit(const CommitOrder& commit) {
  if (commit.step + 1 < steps_done_) return Dropped{DropReason::kStale};
  if (phase_ != Phase::kCommit) return Dropped{DropReason::kUnexpected};
  if (commit.step + 1 > steps_done_) return Dropped{DropReason::kEarly};
  return begin_duties(commit);
}

ProgramOutcome LocalProgram::on_claim(const ClaimOrder& claim) {
  if (claim.samples.count == 0) return Dropped{DropReason::kOutOfBounds};
  if (waiting_) return Dropped{DropReason::kRepeated};
  switch (phase_) {
    case Phase::kPause:
      if (claim.step != step_) return Dropped{DropReason::kStale};
      if (!averaging_.empty()) return Dropped{DropReason::kUnexpected};
      return begin_pass(claim.samples);
    case Phase::kDuties:
      if (claim.step != step_) return Dropped{DropReason::kStale};
      break;
    case Phase::kUpdate:
      if (next_ || claim.step != step_ + 1) return Dropped{DropReason::kStale};
      break;
    default:
      return Dropped{DropReason::kUnexpected};
  }
  if (!early_.empty()) return Dropped{DropReason::kUnexpected};  // Nobody meets who has samples.
  waiting_ = claim.samples;
  return ProgramCommands();
}

ProgramOutcome LocalProgram::on_update(const UpdateOrder& update) {
  if (update.step < step_) return Dropped{DropReason::kStale};
  const bool is_awaited = phase_ == Phase::kPass && pass_.is_complete() && update.step == step_;
  if (!is_awaited) return Dropped{DropReason::kUnexpected};
  phase_ = Phase::kUpdate;
  next_ = update.next;
  is_global_ = false;
  return ProgramCommands{
      RunUpdate{step_, claim_.first / samples_per_step_, update.gradient_norm, update.profile}};
}

ProgramOutcome LocalProgram::on_average(const AverageOrder& order) {
  if (order.number <= newest_[order.stage]) return Dropped{DropReason::kRepeated};
  // Who has no samples in a round may still validate when the others have done theirs.
  const bool validates = phase_ == Phase::kDuties && order.is_closing;
  const bool updates = phase_ == Phase::kUpdate && order.is_closing != next_.has_value();
  if (order.is_closing && waiting_) return Dropped{DropReason::kUnexpected};
  if (validates || updates) {
    newest_[order.stage] = order.number;
    early_.push_back(order);
    return ProgramCommands();
  }
  const bool is_awaited = order.is_closing
                              ? phase_ == Phase::kPause
                              : phase_ == Phase::kAverage && stages_left_.contains(order.stage);
  if (!is_awaited || averaging_.contains(order.stage)) return Dropped{DropReason::kUnexpected};
  newest_[order.stage] = order.number;
  ProgramCommands commands;
  begin(order, commands);
  if (phase_ == Phase::kAverage && stages_left_.empty()) return end_step();
  return commands;
}

ProgramOutcome LocalProgram::on_averaged(int32_t stage, uint64_t number, bool ok) {
  const auto found = averaging_.find(stage);
  if (found == averaging_.end() || found->second.number != number) {
    return Dropped{DropReason::kStale};
  }
  const AverageOrder order = found->second;
  averaging_.erase(found);
  if (!order.is_closing) {
    stages_left_.erase(stage);
    return stages_left_.empty() ? end_step() : ProgramCommands();
  }
  if (!order.is_global) return ProgramCommands();
  if (ok) stages_left_.erase(stage);
  if (!stages_left_.empty()) return ProgramCommands();
  phase_ = Phase::kCommit;
  steps_done_ = order.steps_done;
  is_global_ = true;
  return ProgramCommands();
}

ProgramCommands LocalProgram::begin_pass(const SampleClaim& claim) {
  SKEIN_CHECK(claim.count > 0) << "step " << step_ << " has no samples";
  phase_ = Phase::kPass;
  claim_ = claim;
  stages_left_.clear();
  return pass_.begin(step_);
}

ProgramCommands LocalProgram::begin_averaging() {
  phase_ = Phase::kAverage;
  ProgramCommands commands = begin_early();
  return stages_left_.empty() ? end_step() : commands;
}

/// Goes on with the next step, if there are samples for it.
ProgramCommands LocalProgram::end_step() {
  ++step_;
  if (!next_) return pause();
  return begin_pass(*std::exchange(next_, std::nullopt));
}

ProgramCommands LocalProgram::pause() {
  phase_ = Phase::kPause;
  if (waiting_) return begin_pass(*std::exchange(waiting_, std::nullopt));
  return begin_early();
}

/// All stages need an average from now on; begins those that were told of before.
ProgramCommands LocalProgram::begin_early() {
  for (const StageRole& each : stages_) stages_left_.insert(each.stage);
  ProgramCommands commands;
  for (const AverageOrder& order : std::exchange(early_, {})) begin(order, commands);
  return commands;
}

void LocalProgram::begin(const AverageOrder& order, ProgramCommands& commands) {
  if (order.is_alone) {
    stages_left_.erase(order.stage);
    return;
  }
  if (order.is_closing) is_global_ = false;  // Until all stages have the global average.
  averaging_[order.stage] = order;
  commands.push_back(RunAverage{order.stage, order.number, order.is_global});
}

ProgramCommands LocalProgram::begin_duties(const CommitOrder& commit) {
  phase_ = Phase::kDuties;
  is_last_ = commit.last;
  ProgramCommands commands;
  if (!is_last_) commands.push_back(BeginRound{});
  append(commands, duties_.begin(commit, steps_done_));
  append(commands, end_duties());
  return commands;
}

/// Leaves the commit behind if nothing that it ordered is under way.
ProgramCommands LocalProgram::end_duties() {
  if (duties_.is_under_way()) return {};
  if (!is_last_) return pause();
  phase_ = Phase::kFinished;
  return {};
}

std::optional<uint64_t> LocalProgram::computed_step() const {
  return phase_ == Phase::kPass && pass_.computes() ? std::optional(step_) : std::nullopt;
}

/// All rows of a micro-batch are here: the samples of a step are one after the other.
uint64_t LocalProgram::first_sample(uint64_t step, int32_t microbatch, const RowRange& rows) const {
  SKEIN_CHECK(step == step_) << "step " << step << " is not in progress";
  return claim_.first + static_cast<uint64_t>(microbatch * rows.count);
}

bool LocalProgram::is_working() const {
  return pass_.is_working() || phase_ == Phase::kUpdate || duties_.is_working();
}

std::string LocalProgram::activity() const {
  switch (phase_) {
    case Phase::kIdle:
      return "the start";
    case Phase::kPass:
      return pass_.activity();
    case Phase::kUpdate:
      return "the update";
    case Phase::kAverage:
      return "its group";
    case Phase::kPause:
      return "samples";
    case Phase::kCommit:
      return "the commit";
    case Phase::kDuties:
      return duties_.is_working() ? "the validation" : "a validation input";
    case Phase::kFinished:
      return "the end";
  }
  return "the end";
}

void LocalProgram::check_invariants() const {
  pass_.check_invariants();
  duties_.check_invariants();
  const bool updates = phase_ == Phase::kUpdate;
  const bool averages = phase_ == Phase::kAverage;
  const bool validates = phase_ == Phase::kDuties;
  SKEIN_CHECK(duties_.is_under_way() == validates) << "in " << activity();
  SKEIN_CHECK(phase_ == Phase::kPass || !pass_.is_working()) << "a pass runs in " << activity();
  const bool has_pass = phase_ == Phase::kPass || updates || averages;
  SKEIN_CHECK(!has_pass || pass_.step() == step_) << "pass " << pass_.step() << " in " << step_;
  SKEIN_CHECK(!next_ || updates || averages) << "samples are kept in " << activity();
  SKEIN_CHECK(!averages || next_) << "nothing follows the average";
  SKEIN_CHECK(!waiting_ || (updates && !next_) || validates) << "a claim waits in " << activity();
  SKEIN_CHECK(early_.empty() || updates || validates) << "a group waits in " << activity();
  SKEIN_CHECK(averaging_.empty() || averages || phase_ == Phase::kPause) << "in " << activity();
  SKEIN_CHECK(!averages || !stages_left_.empty()) << "no stage has a group left";
  SKEIN_CHECK(!is_global_ || !(updates || averages)) << "the state is its own in " << activity();
}

}  // namespace skein::plans
