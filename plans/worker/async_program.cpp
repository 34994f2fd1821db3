#include "plans/worker/async_program.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/schedule/continuous_1f1b.hpp"

namespace skein::plans {
namespace {

Continuous1F1B order_of(const ProgramOptions& options) {
  return {options.stage_count, static_cast<int32_t>(options.actions.size() / 2),
          options.passes_in_flight};
}

}  // namespace

AsyncProgram::AsyncProgram(ProgramOptions options)
    : samples_per_step_(options.samples_per_step),
      stage_(options.stages.front()),
      microbatches_(static_cast<uint64_t>(order_of(options).microbatch_count)),
      claims_max_(static_cast<uint64_t>(options.passes_in_flight)),
      ahead_max_(static_cast<uint64_t>(order_of(options).stash_peak(stage_.stage))),
      duties_({options.stages, options.validation_batches, options.first_step}),
      steps_done_(options.first_step) {
  SKEIN_CHECK(options.stages.size() == 1 && stage_.groups.empty() && !options.actions.empty())
      << options.stages.size() << " stages are here";
  for (const Action& action : options.actions) {
    const bool is_whole =
        action.type == ActionType::kForward || action.type == ActionType::kBackward;
    SKEIN_CHECK(is_whole && action.stage == stage_.stage) << to_text(action);
  }
}

ProgramOutcome AsyncProgram::on_start(const CommitOrder& left) {
  if (phase_ != Phase::kIdle) return Dropped{DropReason::kRepeated};
  return begin_duties(left);
}

ProgramOutcome AsyncProgram::on_input(const InputKey& key) {
  if (is_finished()) return Dropped{DropReason::kUnexpected};
  if (key.kind == InputKind::kValidation) {
    ProgramOutcome outcome = duties_.on_input(key);
    if (outcome.is_dropped() || phase_ != Phase::kDuties) return outcome;
    ProgramCommands commands = std::move(outcome).decisions();
    append(commands, end_duties());
    return commands;
  }
  const bool is_forward = key.kind == InputKind::kActivation;
  const bool takes = is_forward ? !stage_.is_first : !stage_.is_last;
  if (!takes || key.stage != stage_.stage || key.microbatch < 0 ||
      static_cast<uint64_t>(key.microbatch) >= microbatches_) {
    return Dropped{DropReason::kOutOfBounds};
  }
  // Neighbours may be told of a claim before this stage is.
  if (key.step > step_ + claims_max_) return Dropped{DropReason::kEarly};
  const uint64_t number = key.step * microbatches_ + static_cast<uint64_t>(key.microbatch);
  if (number < (is_forward ? forwards_ : backwards_)) return Dropped{DropReason::kStale};
  if (!inputs_.insert(key).second) return Dropped{DropReason::kRepeated};
  return advance();
}

ProgramCommands AsyncProgram::on_work_done() {
  if (phase_ == Phase::kRun) {
    SKEIN_CHECK(!running_.empty()) << "work ended that was not started";
    const RunAction ended = running_.front();
    running_.pop_front();
    if (!ended.ends_step) return advance();
    if (ended.is_last_part()) return end_pass();
    return ended.part == 0 ? ProgramCommands{SendEarlySignal{step_, stage_.stage}}
                           : ProgramCommands();
  }
  if (phase_ == Phase::kUpdate) {
    phase_ = Phase::kAverage;
    is_global_ = false;
    return begin_early();
  }
  SKEIN_CHECK(phase_ == Phase::kDuties) << "work ended that was not started";
  ProgramCommands commands = duties_.on_work_done();
  append(commands, end_duties());
  return commands;
}

ProgramOutcome AsyncProgram::on_commit(const CommitOrder& commit) {
  if (commit.step + 1 < steps_done_) return Dropped{DropReason::kStale};
  if (phase_ != Phase::kCommit) return Dropped{DropReason::kUnexpected};
  if (commit.step + 1 > steps_done_) return Dropped{DropReason::kEarly};
  return begin_duties(commit);
}

ProgramOutcome AsyncProgram::on_claim(const ClaimOrder& claim) {
  if (claim.samples.count == 0) return Dropped{DropReason::kOutOfBounds};
  const bool updates = phase_ == Phase::kUpdate || phase_ == Phase::kAverage;
  if (phase_ != Phase::kRun && !updates && phase_ != Phase::kDuties) {
    return Dropped{DropReason::kUnexpected};
  }
  const uint64_t next = step_ + claims_.size();
  if (claim.step < next) return Dropped{DropReason::kRepeated};
  // The claim of the step that it has reported may be over for the coordinator.
  if (claim.step > next || claims_.size() >= claims_max_ + (updates ? 1 : 0)) {
    return Dropped{DropReason::kEarly};
  }
  if (is_closing()) return Dropped{DropReason::kUnexpected};  // Nobody meets who has samples.
  claims_.push_back(claim);
  return advance();
}

/// It has been told of a group of the round's end, for which there must be no claims.
bool AsyncProgram::is_closing() const {
  return (averaging_ && averaging_->is_closing) ||
         std::any_of(early_.begin(), early_.end(),
                     [](const AverageOrder& each) { return each.is_closing; });
}

ProgramOutcome AsyncProgram::on_average(const AverageOrder& order) {
  if (order.stage != stage_.stage) return Dropped{DropReason::kOutOfBounds};
  if (order.number <= newest_) return Dropped{DropReason::kRepeated};
  if (!is_awaited(order)) return Dropped{DropReason::kUnexpected};
  newest_ = order.number;
  early_.push_back(order);
  const bool waits = phase_ == Phase::kAverage || (phase_ == Phase::kRun && running_.empty());
  return waits ? begin_early() : ProgramCommands();
}

/// One for each update, and then, without another claim, those of the round's end.
bool AsyncProgram::is_awaited(const AverageOrder& order) const {
  const bool has_word = averaging_ || !early_.empty();
  const bool updates = phase_ == Phase::kUpdate || phase_ == Phase::kAverage;
  if (!order.is_closing) return (updates || has_asked()) && !has_word;
  if (phase_ == Phase::kUpdate) return has_word && claims_.size() == 1;
  return claims_.empty() && (phase_ == Phase::kRun || phase_ == Phase::kDuties);
}

/// The first part of the last backward has ended, and the others have not.
bool AsyncProgram::has_asked() const {
  return !running_.empty() && running_.front().ends_step && running_.front().part > 0;
}

ProgramOutcome AsyncProgram::on_averaged(int32_t stage, uint64_t number, bool ok) {
  if (!averaging_ || stage != stage_.stage || averaging_->number != number) {
    return Dropped{DropReason::kStale};
  }
  const AverageOrder order = *std::exchange(averaging_, std::nullopt);
  if (!order.is_closing) return end_step();
  if (!order.is_global || !ok) return begin_early();
  phase_ = Phase::kCommit;
  steps_done_ = order.steps_done;
  is_global_ = true;
  return ProgramCommands();
}

ProgramCommands AsyncProgram::advance() {
  ProgramCommands commands;
  while (phase_ == Phase::kRun && running_.size() < kRunningMax) {
    if (!may_forward() && !may_backward()) break;
    const ActionType type = may_forward() ? ActionType::kForward : ActionType::kBackward;
    const std::optional<InputKey> input =
        input_of(type, type == ActionType::kForward ? forwards_ : backwards_);
    if (input && inputs_.erase(*input) == 0) break;
    RunAction run = start(type);
    for (run.part = 0; run.part < run.part_count; ++run.part) {
      running_.push_back(run);
      commands.push_back(run);
      run.begins_step = false;  // Gradients are zeroed once.
    }
  }
  return commands;
}

/// What the order has next, if there is a claim for it; else backwards go on.
bool AsyncProgram::may_forward() const {
  return forwards_ < (step_ + claims_.size()) * microbatches_ &&
         forwards_ - backwards_ < ahead_max_ && backwards_ < (step_ + 1) * microbatches_;
}

/// Those of the next claim wait until the gradient of this one is applied.
bool AsyncProgram::may_backward() const {
  return backwards_ < forwards_ && backwards_ < (step_ + 1) * microbatches_;
}

std::optional<InputKey> AsyncProgram::input_of(ActionType type, uint64_t number) const {
  const bool is_forward = type == ActionType::kForward;
  if (is_forward ? stage_.is_first : stage_.is_last) return std::nullopt;
  return InputKey{is_forward ? InputKind::kActivation : InputKind::kGradient,
                  number / microbatches_, stage_.stage,
                  static_cast<int32_t>(number % microbatches_)};
}

RunAction AsyncProgram::start(ActionType type) {
  const bool is_forward = type == ActionType::kForward;
  const uint64_t number = is_forward ? forwards_ : backwards_;
  RunAction run;
  run.step = number / microbatches_;
  run.action = {stage_.stage, type, static_cast<int32_t>(number % microbatches_)};
  const bool is_first = run.action.microbatch == 0;
  if (is_forward) {
    // The last stage has no forward ahead, and is the one that has a loss.
    run.begins_step = is_first && (stage_.is_last || forwards_ == backwards_);
    forward_steps_.push_back(step_);
    ++forwards_;
    return run;
  }
  run.begins_step = is_first && !stage_.is_last;
  run.ends_step = number + 1 == (step_ + 1) * microbatches_;
  if (run.ends_step) run.part_count = stage_.bucket_count;
  weight_delay_ = std::max(weight_delay_, static_cast<uint32_t>(step_ - forward_steps_.front()));
  forward_steps_.pop_front();
  ++backwards_;
  return run;
}

/// The gradient of a claim is final: nobody else is asked whether to apply it.
ProgramCommands AsyncProgram::end_pass() {
  phase_ = Phase::kUpdate;
  RunUpdate update;
  update.step = step_;
  update.job_step = claims_.front().samples.first / samples_per_step_;
  update.by_stage = true;
  update.profile = std::any_of(std::next(claims_.begin()), claims_.end(),
                               [](const ClaimOrder& each) { return each.profile; });
  return {SendReady{step_, stage_.stage, std::exchange(weight_delay_, 0)}, update};
}

ProgramCommands AsyncProgram::end_step() {
  ++step_;
  claims_.pop_front();
  phase_ = Phase::kRun;
  ProgramCommands commands = advance();
  append(commands, begin_early());
  return commands;
}

/// Begins the group that it was told of before, if none is under way.
ProgramCommands AsyncProgram::begin_early() {
  if (early_.empty() || averaging_) return {};
  const AverageOrder order = early_.front();
  early_.pop_front();
  return begin(order);
}

ProgramCommands AsyncProgram::begin(const AverageOrder& order) {
  if (order.is_alone) return order.is_closing ? begin_early() : end_step();
  if (order.is_closing) is_global_ = false;  // Until it has the global average.
  averaging_ = order;
  return {RunAverage{order.stage, order.number, order.is_global}};
}

ProgramCommands AsyncProgram::begin_duties(const CommitOrder& commit) {
  phase_ = Phase::kDuties;
  is_last_ = commit.last;
  ProgramCommands commands;
  if (!is_last_) commands.push_back(BeginRound{});
  append(commands, duties_.begin(commit, steps_done_));
  append(commands, end_duties());
  return commands;
}

/// Leaves the commit behind if nothing that it ordered is under way.
ProgramCommands AsyncProgram::end_duties() {
  if (duties_.is_under_way()) return {};
  if (is_last_) {
    phase_ = Phase::kFinished;
    return {};
  }
  phase_ = Phase::kRun;
  ProgramCommands commands = advance();
  append(commands, begin_early());
  return commands;
}

const SampleClaim& AsyncProgram::claim_of(uint64_t step) const {
  SKEIN_CHECK(step >= step_ && step < step_ + claims_.size()) << "step " << step << " has no claim";
  return claims_[step - step_].samples;
}

/// All rows of a micro-batch are here: the samples of a step are one after the other.
uint64_t AsyncProgram::first_sample(uint64_t step, int32_t microbatch, const RowRange& rows) const {
  return claim_of(step).first + static_cast<uint64_t>(microbatch * rows.count);
}

bool AsyncProgram::is_working() const {
  return !running_.empty() || phase_ == Phase::kUpdate || duties_.is_working();
}

std::string AsyncProgram::activity() const {
  switch (phase_) {
    case Phase::kIdle:
      return "the start";
    case Phase::kRun: {
      if (!running_.empty()) return to_text(running_.front().action);
      if (!may_forward() && !may_backward()) return "samples";
      const bool is_forward = may_forward();
      const uint64_t number = is_forward ? forwards_ : backwards_;
      return absl::StrCat(
          "the input of ",
          to_text(Action{stage_.stage, is_forward ? ActionType::kForward : ActionType::kBackward,
                         static_cast<int32_t>(number % microbatches_)}));
    }
    case Phase::kUpdate:
      return "the update";
    case Phase::kAverage:
      return "its group";
    case Phase::kCommit:
      return "the commit";
    case Phase::kDuties:
      return duties_.is_working() ? "the validation" : "a validation input";
    case Phase::kFinished:
      return "the end";
  }
  return "the end";
}

void AsyncProgram::check_invariants() const {
  duties_.check_invariants();
  const bool updates = phase_ == Phase::kUpdate || phase_ == Phase::kAverage;
  SKEIN_CHECK(duties_.is_under_way() == (phase_ == Phase::kDuties)) << "in " << activity();
  SKEIN_CHECK(claims_.size() <= claims_max_ + (updates ? 1 : 0)) << claims_.size() << " claims";
  SKEIN_CHECK(!updates || !claims_.empty()) << "an update of no claim";
  const uint64_t end = (step_ + claims_.size()) * microbatches_;
  SKEIN_CHECK(step_ * microbatches_ <= backwards_ && backwards_ <= forwards_ && forwards_ <= end)
      << step_ << " steps, " << backwards_ << " backwards, " << forwards_ << " forwards, " << end;
  SKEIN_CHECK(forwards_ - backwards_ <= ahead_max_) << forwards_ - backwards_ << " ahead";
  SKEIN_CHECK(forward_steps_.size() == forwards_ - backwards_) << forward_steps_.size();
  SKEIN_CHECK(!updates || backwards_ == (step_ + 1) * microbatches_) << "an update too early";
  SKEIN_CHECK(running_.empty() || phase_ == Phase::kRun) << "actions run in " << activity();
  for (size_t i = 0; i < claims_.size(); ++i) {
    SKEIN_CHECK(claims_[i].step == step_ + i) << "claim " << i << " is of " << claims_[i].step;
  }
  SKEIN_CHECK(!averaging_ || phase_ == Phase::kAverage || phase_ == Phase::kRun) << activity();
  SKEIN_CHECK(!averaging_ || averaging_->is_closing == (phase_ == Phase::kRun)) << activity();
  SKEIN_CHECK(!is_closing() || claims_.size() == (updates ? 1 : 0)) << "closing with claims";
  SKEIN_CHECK(!is_global_ || phase_ != Phase::kAverage) << "its state is its own";
}

}  // namespace skein::plans
