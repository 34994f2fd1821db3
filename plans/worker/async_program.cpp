#include "plans/worker/async_program.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/schedule/continuous_1f1b.hpp"

namespace skein::plans {
namespace {

Continuous1F1B order_of(const ProgramOptions& options) {
  const size_t actions_of_each = options.actions.size() / options.stages.size();
  return {options.stage_count, static_cast<int32_t>(actions_of_each / 2), options.passes_in_flight};
}

}  // namespace

AsyncProgram::AsyncProgram(ProgramOptions options)
    : samples_per_step_(options.samples_per_step),
      stages_(options.stages),
      microbatches_(static_cast<uint64_t>(order_of(options).microbatch_count)),
      claims_max_(static_cast<uint64_t>(options.passes_in_flight)),
      ahead_max_(static_cast<uint64_t>(order_of(options).stash_peak(stages_.back().stage))),
      duties_({options.stages, options.validation_batches, options.first_step}),
      steps_done_(options.first_step) {
  SKEIN_CHECK(!options.actions.empty()) << "no actions";
  for (size_t i = 0; i < stages_.size(); ++i) {
    const bool is_beside = stages_[i].stage == stages_[0].stage + static_cast<int32_t>(i);
    SKEIN_CHECK(is_beside && stages_[i].groups.empty()) << "stage " << stages_[i].stage;
  }
  for (const Action& action : options.actions) {
    const bool is_whole =
        action.type == ActionType::kForward || action.type == ActionType::kBackward;
    SKEIN_CHECK(is_whole && is_here(action.stage)) << to_text(action);
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
  const std::optional<size_t> stage = find_stage(key.stage);
  if (!stage || key.microbatch < 0 || static_cast<uint64_t>(key.microbatch) >= microbatches_ ||
      (is_forward ? stages_[*stage].is_first : stages_[*stage].is_last)) {
    return Dropped{DropReason::kOutOfBounds};
  }
  // Neighbours may be told of a claim before this stage is.
  if (key.step > step_ + claims_max_) return Dropped{DropReason::kEarly};
  const uint64_t number = key.step * microbatches_ + static_cast<uint64_t>(key.microbatch);
  if (number < begun(*stage, is_forward)) return Dropped{DropReason::kStale};
  if (!inputs_.insert(key).second) return Dropped{DropReason::kRepeated};
  return advance();
}

ProgramCommands AsyncProgram::on_work_done() {
  if (phase_ == Phase::kRun) {
    SKEIN_CHECK(!running_.empty()) << "work ended that was not started";
    const RunAction ended = running_.front();
    running_.pop_front();
    if (ended.ends_step) return end_action(ended);
    return advance();
  }
  if (phase_ == Phase::kUpdate) {
    phase_ = Phase::kAverage;
    is_global_ = false;
    for (const StageRole& each : stages_) stages_left_.insert(each.stage);
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
  return std::any_of(averaging_.begin(), averaging_.end(),
                     [](const auto& each) { return each.second.is_closing; }) ||
         std::any_of(early_.begin(), early_.end(),
                     [](const AverageOrder& each) { return each.is_closing; });
}

ProgramOutcome AsyncProgram::on_average(const AverageOrder& order) {
  if (!is_here(order.stage)) return Dropped{DropReason::kOutOfBounds};
  if (order.number <= newest_[order.stage]) return Dropped{DropReason::kRepeated};
  if (!is_awaited(order)) return Dropped{DropReason::kUnexpected};
  newest_[order.stage] = order.number;
  early_.push_back(order);
  return begin_early();
}

/// The stage knows of its group for the update of this step.
bool AsyncProgram::has_word(int32_t stage) const {
  if (phase_ == Phase::kAverage && !stages_left_.contains(stage)) return true;
  return averaging_.contains(stage) ||
         std::any_of(early_.begin(), early_.end(),
                     [&](const AverageOrder& each) { return each.stage == stage; });
}

/// One for each update of a stage, and then, without another claim, those of the round's end.
bool AsyncProgram::is_awaited(const AverageOrder& order) const {
  if (!order.is_closing) return asked_.contains(order.stage) && !has_word(order.stage);
  if (phase_ == Phase::kUpdate) return has_word(order.stage) && claims_.size() == 1;
  return claims_.empty() && (phase_ == Phase::kRun || phase_ == Phase::kDuties);
}

ProgramOutcome AsyncProgram::on_averaged(int32_t stage, uint64_t number, bool ok) {
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
  if (!order.is_global) return begin_early();
  if (ok) lack_global_.erase(stage);
  if (!lack_global_.empty()) return begin_early();
  phase_ = Phase::kCommit;
  steps_done_ = order.steps_done;
  is_global_ = true;
  return ProgramCommands();
}

ProgramCommands AsyncProgram::advance() {
  ProgramCommands commands;
  while (phase_ == Phase::kRun && running_.size() < kRunningMax) {
    if (!passage_ && !may_forward() && !may_backward()) break;
    Passage passage = next();
    const std::optional<InputKey> input = input_of(passage);
    if (input && inputs_.erase(*input) == 0) break;
    RunAction run = start(passage);
    for (run.part = 0; run.part < run.part_count; ++run.part) {
      running_.push_back(run);
      commands.push_back(run);
      run.begins_step = false;  // Gradients are zeroed once.
    }
    passage_ = passage;
    if (++passage_->stages < stages_.size()) continue;
    ++(passage.type == ActionType::kForward ? forwards_ : backwards_);
    passage_.reset();
  }
  return commands;
}

AsyncProgram::Passage AsyncProgram::next() const {
  if (passage_) return *passage_;
  return {may_forward() ? ActionType::kForward : ActionType::kBackward, 0};
}

/// Backwards go from the last stage to the first.
const StageRole& AsyncProgram::stage_of(const Passage& passage) const {
  const bool is_forward = passage.type == ActionType::kForward;
  return stages_[is_forward ? passage.stages : stages_.size() - 1 - passage.stages];
}

uint64_t AsyncProgram::begun(size_t stage, bool is_forward) const {
  const uint64_t whole = is_forward ? forwards_ : backwards_;
  if (!passage_ || (passage_->type == ActionType::kForward) != is_forward) return whole;
  const size_t before = is_forward ? stage : stages_.size() - 1 - stage;
  return whole + (before < passage_->stages ? 1 : 0);
}

std::optional<size_t> AsyncProgram::find_stage(int32_t stage) const {
  const auto place = static_cast<int64_t>(stage) - stages_.front().stage;
  if (place < 0 || place >= static_cast<int64_t>(stages_.size())) return std::nullopt;
  return static_cast<size_t>(place);
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

std::optional<InputKey> AsyncProgram::input_of(const Passage& passage) const {
  const bool is_forward = passage.type == ActionType::kForward;
  const StageRole& own = stage_of(passage);
  if (is_forward ? own.is_first : own.is_last) return std::nullopt;
  const uint64_t number = is_forward ? forwards_ : backwards_;
  return InputKey{is_forward ? InputKind::kActivation : InputKind::kGradient,
                  number / microbatches_, own.stage, static_cast<int32_t>(number % microbatches_)};
}

RunAction AsyncProgram::start(const Passage& passage) {
  const bool is_forward = passage.type == ActionType::kForward;
  const uint64_t number = is_forward ? forwards_ : backwards_;
  const StageRole& own = stage_of(passage);
  RunAction run;
  run.step = number / microbatches_;
  run.action = {own.stage, passage.type, static_cast<int32_t>(number % microbatches_)};
  const bool is_first = run.action.microbatch == 0;
  if (is_forward) {
    // The last stage has no forward ahead, and is the one that has a loss.
    run.begins_step = is_first && (own.is_last || forwards_ == backwards_);
    if (passage.stages == 0) forward_steps_.push_back(step_);
    return run;
  }
  run.begins_step = is_first && !own.is_last;
  run.ends_step = number + 1 == (step_ + 1) * microbatches_;
  if (run.ends_step) run.part_count = own.bucket_count;
  if (passage.stages == 0) {
    weight_delay_ = std::max(weight_delay_, static_cast<uint32_t>(step_ - forward_steps_.front()));
    forward_steps_.pop_front();
  }
  return run;
}

/// A stage's last backward of the step has ended, or a part of it. When those of all stages have,
/// the gradients are applied: nobody else is asked whether to.
ProgramCommands AsyncProgram::end_action(const RunAction& ended) {
  const int32_t stage = ended.action.stage;
  if (!ended.is_last_part()) {
    if (ended.part > 0) return {};
    asked_.insert(stage);
    return {SendEarlySignal{step_, stage}};
  }
  asked_.insert(stage);
  ProgramCommands commands = {SendReady{step_, stage, weight_delay_}};
  if (stage != stages_.front().stage) {
    append(commands, advance());
    return commands;
  }
  phase_ = Phase::kUpdate;
  weight_delay_ = 0;
  RunUpdate update;
  update.step = step_;
  update.job_step = claims_.front().samples.first / samples_per_step_;
  update.by_stage = true;
  update.profile = std::any_of(std::next(claims_.begin()), claims_.end(),
                               [](const ClaimOrder& each) { return each.profile; });
  commands.push_back(update);
  return commands;
}

ProgramCommands AsyncProgram::end_step() {
  ++step_;
  claims_.pop_front();
  asked_.clear();
  phase_ = Phase::kRun;
  ProgramCommands commands = advance();
  append(commands, begin_early());
  return commands;
}

/// Begins the groups that it was told of and that may begin now, for each stage one at a time.
ProgramCommands AsyncProgram::begin_early() {
  ProgramCommands commands;
  for (auto order = early_.begin(); order != early_.end();) {
    const bool may_begin =
        order->is_closing ? phase_ == Phase::kRun && claims_.empty() : phase_ == Phase::kAverage;
    if (!may_begin || averaging_.contains(order->stage)) {
      ++order;
      continue;
    }
    begin(*order, commands);
    order = early_.erase(order);
  }
  if (phase_ == Phase::kAverage && stages_left_.empty()) append(commands, end_step());
  return commands;
}

void AsyncProgram::begin(const AverageOrder& order, ProgramCommands& commands) {
  if (order.is_alone) {
    stages_left_.erase(order.stage);
    return;
  }
  if (order.is_closing) is_global_ = false;  // Until all stages have the global average.
  averaging_[order.stage] = order;
  commands.push_back(RunAverage{order.stage, order.number, order.is_global});
}

ProgramCommands AsyncProgram::begin_duties(const CommitOrder& commit) {
  phase_ = Phase::kDuties;
  is_last_ = commit.last;
  for (const StageRole& each : stages_) lack_global_.insert(each.stage);
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
      if (!passage_ && !may_forward() && !may_backward()) return "samples";
      const Passage passage = next();
      const uint64_t number = passage.type == ActionType::kForward ? forwards_ : backwards_;
      return absl::StrCat("the input of ",
                          to_text(Action{stage_of(passage).stage, passage.type,
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
  // A passage under way has entered or left them, and is not counted yet.
  const bool is_forward = passage_ && passage_->type == ActionType::kForward;
  const size_t ahead = forwards_ - backwards_ + (is_forward ? 1 : 0);
  SKEIN_CHECK(forward_steps_.size() + (passage_ && !is_forward ? 1 : 0) == ahead)
      << forward_steps_.size() << " forwards ahead, not " << ahead;
  SKEIN_CHECK(!passage_ || (phase_ == Phase::kRun && passage_->stages < stages_.size()))
      << "a passage in " << activity();
  SKEIN_CHECK(!updates || backwards_ == (step_ + 1) * microbatches_) << "an update too early";
  SKEIN_CHECK(running_.empty() || phase_ == Phase::kRun) << "actions run in " << activity();
  for (size_t i = 0; i < claims_.size(); ++i) {
    SKEIN_CHECK(claims_[i].step == step_ + i) << "claim " << i << " is of " << claims_[i].step;
  }
  for (const auto& [stage, order] : averaging_) {
    const Phase own = order.is_closing ? Phase::kRun : Phase::kAverage;
    SKEIN_CHECK(is_here(stage) && phase_ == own) << "stage " << stage << " in " << activity();
  }
  SKEIN_CHECK(phase_ != Phase::kAverage || !stages_left_.empty()) << "no stage has a group left";
  SKEIN_CHECK(!is_closing() || claims_.size() == (updates ? 1 : 0)) << "closing with claims";
  SKEIN_CHECK(!is_global_ || phase_ != Phase::kAverage) << "its state is its own";
}

}  // namespace skein::plans
