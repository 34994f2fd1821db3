#include "plans/replica_program.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {

ReplicaProgram::ReplicaProgram(Options options)
    : options_(std::move(options)), step_(options_.first_step) {
  SKEIN_CHECK(!options_.actions.empty()) << "a replica needs actions";
}

ReplicaCommands ReplicaProgram::on_start() {
  if (mode_ != Mode::kIdle) return drop();
  return begin_step();
}

ReplicaCommands ReplicaProgram::on_input(const InputKey& key) {
  // Neighbours are at most one commit ahead: their inputs of the next step may come early.
  if (mode_ == Mode::kFinished || key.step < step_ || !inputs_.insert(key).second) return drop();
  if (busy_) return {};
  if (mode_ == Mode::kCompute) return advance_compute();
  if (mode_ == Mode::kValidate) return advance_validation();
  return {};
}

ReplicaCommands ReplicaProgram::on_work_done() {
  SKEIN_CHECK(busy_) << "work ended that was not started";
  busy_ = false;
  switch (mode_) {
    case Mode::kCompute:
      ++next_action_;
      return next_action_ == options_.actions.size() ? end_actions() : advance_compute();
    case Mode::kReduce:
      mode_ = Mode::kWait;
      return {SendReduced{step_}};
    case Mode::kUpdate:
      return end_update();
    case Mode::kValidate:
      ++next_validation_;
      return next_validation_ == options_.validation_batches ? end_validation()
                                                             : advance_validation();
    default:
      SKEIN_CHECK(false) << "no work runs in this mode";
      return {};
  }
}

ReplicaCommands ReplicaProgram::on_group_start(GroupId group, uint64_t step) {
  const bool is_member =
      std::find(options_.groups.begin(), options_.groups.end(), group) != options_.groups.end();
  if (mode_ != Mode::kReduce || step != step_ || !is_member || !started_.insert(group).second) {
    return drop();
  }
  return {RunReduction{group, step}};
}

ReplicaCommands ReplicaProgram::on_group_reduced(GroupId group, uint64_t step) {
  if (mode_ != Mode::kReduce || step != step_ || !started_.contains(group) ||
      !reduced_.insert(group).second) {
    return drop();
  }
  if (reduced_.size() < options_.groups.size()) return {};
  busy_ = true;
  return {RunNorm{step_}};
}

ReplicaCommands ReplicaProgram::on_commit(const CommitOrder& commit) {
  if (mode_ != Mode::kWait || commit.step != step_) return drop();
  mode_ = Mode::kUpdate;
  commit_ = commit;
  busy_ = true;
  return {RunUpdate{commit}};
}

ReplicaCommands ReplicaProgram::begin_step() {
  mode_ = Mode::kCompute;
  next_action_ = 0;
  started_.clear();
  reduced_.clear();
  return advance_compute();
}

ReplicaCommands ReplicaProgram::advance_compute() {
  const Action& action = options_.actions[next_action_];
  const bool is_forward = action.type == ActionType::kForward;
  // A backward of the weights works on what the backward of the input left behind.
  const bool needs_input = is_forward
                               ? !options_.is_first
                               : !options_.is_last && action.type != ActionType::kBackwardWeight;
  const InputKind kind = is_forward ? InputKind::kActivation : InputKind::kGradient;
  if (needs_input && !take_input(kind, action.microbatch)) return {};
  busy_ = true;
  return {RunAction{step_, action, next_action_ == 0, next_action_ + 1 == options_.actions.size()}};
}

ReplicaCommands ReplicaProgram::end_actions() {
  mode_ = options_.groups.empty() ? Mode::kWait : Mode::kReduce;
  return {SendReady{step_}};
}

ReplicaCommands ReplicaProgram::end_update() {
  ReplicaCommands commands;
  if (commit_->checkpoint && options_.leads) commands.push_back(SaveState{step_ + 1});
  if (commit_->validate && options_.validation_batches > 0) {
    mode_ = Mode::kValidate;
    next_validation_ = 0;
    const ReplicaCommands more = advance_validation();
    commands.insert(commands.end(), more.begin(), more.end());
    return commands;
  }
  const ReplicaCommands more = end_validation();
  commands.insert(commands.end(), more.begin(), more.end());
  return commands;
}

ReplicaCommands ReplicaProgram::advance_validation() {
  if (!options_.is_first && !take_input(InputKind::kValidation, next_validation_)) return {};
  busy_ = true;
  return {RunValidation{step_, next_validation_, next_validation_ == 0}};
}

/// Leaves the committed step behind, whether there was a validation pass or not.
ReplicaCommands ReplicaProgram::end_validation() {
  ReplicaCommands commands;
  if (mode_ == Mode::kValidate && options_.is_last) commands.push_back(SendValidated{step_});
  const bool last = commit_->last;
  ++step_;
  commit_.reset();
  if (last) {
    mode_ = Mode::kFinished;
    return commands;
  }
  const ReplicaCommands more = begin_step();
  commands.insert(commands.end(), more.begin(), more.end());
  return commands;
}

bool ReplicaProgram::take_input(InputKind kind, int32_t microbatch) {
  return inputs_.erase(InputKey{kind, step_, microbatch}) > 0;
}

ReplicaCommands ReplicaProgram::drop() {
  ++dropped_;
  return {};
}

}  // namespace skein::plans
