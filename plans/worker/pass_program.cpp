#include "plans/worker/pass_program.hpp"

#include <utility>

#include "plans/base/check.hpp"
#include "plans/worker/pipeline_pass.hpp"
#include "plans/worker/token_pass.hpp"

namespace skein::plans {

template <class Pass>
PassProgram<Pass>::PassProgram(const ProgramOptions& options, Pass pass)
    : samples_per_step_(options.samples_per_step),
      pass_(std::move(pass)),
      duties_({options.stages, options.validation_batches, options.first_step}),
      steps_done_(options.first_step) {}

template <class Pass>
ProgramOutcome PassProgram<Pass>::on_start(const CommitOrder& left) {
  if (phase_ != Phase::kIdle) return Dropped{DropReason::kRepeated};
  return begin_duties(left);  // As if its update had just ended.
}

template <class Pass>
ProgramOutcome PassProgram<Pass>::on_input(const InputKey& key) {
  if (is_finished()) return Dropped{DropReason::kUnexpected};
  if (key.kind != InputKind::kValidation) return pass_.on_input(key);
  ProgramOutcome outcome = duties_.on_input(key);
  if (outcome.is_dropped() || phase_ != Phase::kDuties) return outcome;
  ProgramCommands commands = std::move(outcome).decisions();
  append(commands, go_on());
  return commands;
}

template <class Pass>
ProgramCommands PassProgram<Pass>::on_work_done() {
  if (phase_ == Phase::kPass) return pass_.on_work_done();
  if (phase_ == Phase::kUpdate) {
    ++steps_done_;
    return begin_duties(*commit_);
  }
  SKEIN_CHECK(phase_ == Phase::kDuties) << "work ended that was not started";
  ProgramCommands commands = duties_.on_work_done();
  append(commands, go_on());
  return commands;
}

template <class Pass>
ProgramOutcome PassProgram<Pass>::on_group_reduced(GroupId group, uint64_t step, int32_t bucket) {
  if (phase_ != Phase::kPass) return Dropped{DropReason::kStale};
  return pass_.on_group_reduced(group, step, bucket);
}

template <class Pass>
ProgramOutcome PassProgram<Pass>::on_commit(const CommitOrder& commit) {
  if (commit.step < steps_done_) return Dropped{DropReason::kStale};
  if (phase_ == Phase::kUpdate && commit.step == steps_done_) return Dropped{DropReason::kRepeated};
  if (awaited_commit() != commit.step) return Dropped{DropReason::kEarly};
  phase_ = Phase::kUpdate;
  commit_ = commit;
  return ProgramCommands{RunUpdate{commit.step, commit.step, commit.gradient_norm, commit.profile}};
}

template <class Pass>
ProgramCommands PassProgram<Pass>::begin_duties(const CommitOrder& commit) {
  phase_ = Phase::kDuties;
  commit_ = commit;
  ProgramCommands commands = duties_.begin(commit, steps_done_);
  append(commands, go_on());
  return commands;
}

template <class Pass>
ProgramCommands PassProgram<Pass>::go_on() {
  if (duties_.is_under_way()) return {};
  const bool is_last = commit_->last;
  commit_.reset();
  phase_ = is_last ? Phase::kFinished : Phase::kPass;
  return is_last ? ProgramCommands() : pass_.begin(steps_done_);
}

template <class Pass>
std::optional<uint64_t> PassProgram<Pass>::computed_step() const {
  return phase_ == Phase::kPass && pass_.computes() ? std::optional(steps_done_) : std::nullopt;
}

template <class Pass>
std::optional<uint64_t> PassProgram<Pass>::awaited_commit() const {
  const bool waits = phase_ == Phase::kPass && pass_.is_complete();
  return waits ? std::optional(steps_done_) : std::nullopt;
}

template <class Pass>
bool PassProgram<Pass>::is_working() const {
  return pass_.is_working() || phase_ == Phase::kUpdate || duties_.is_working();
}

template <class Pass>
std::string PassProgram<Pass>::activity() const {
  switch (phase_) {
    case Phase::kIdle:
    case Phase::kPass:
      return pass_.activity();
    case Phase::kUpdate:
      return "the update";
    case Phase::kDuties:
      return duties_.is_working() ? "the validation" : "a validation input";
    case Phase::kFinished:
      return "the end";
  }
  return "the end";
}

template <class Pass>
void PassProgram<Pass>::check_invariants() const {
  pass_.check_invariants();
  duties_.check_invariants();
  SKEIN_CHECK(duties_.is_under_way() == (phase_ == Phase::kDuties)) << "in " << activity();
  SKEIN_CHECK(commit_.has_value() == (phase_ == Phase::kUpdate || phase_ == Phase::kDuties))
      << "in " << activity();
  SKEIN_CHECK(phase_ == Phase::kPass || !pass_.is_working()) << "a pass runs in " << activity();
  const bool has_pass = phase_ == Phase::kPass || phase_ == Phase::kUpdate;
  SKEIN_CHECK(!has_pass || pass_.step() == steps_done_)
      << "pass " << pass_.step() << " after " << steps_done_ << " steps";
}

template class PassProgram<PipelinePass>;
template class PassProgram<TokenPass>;

}  // namespace skein::plans
