#include "plans/worker/rank_program.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

/// One piece of work runs and one waits behind it: enough that the device never waits for us.
constexpr size_t kRunningMax = 2;

void append(RankCommands& to, const RankCommands& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

RankProgram::RankProgram(Options options)
    : options_(std::move(options)),
      step_(options_.is_column ? 0 : options_.first_step),
      common_steps_(options_.first_step) {
  SKEIN_CHECK(!options_.actions.empty() && !options_.stages.empty()) << "a rank needs actions";
}

RankCommands RankProgram::on_start(const CommitOrder& left) {
  if (mode_ != Mode::kIdle) return drop();
  const bool has_orders = left.validate || left.checkpoint || left.last;
  if (options_.is_column) {
    commit_ = left;
    commit_->step = options_.first_step - 1;
    RankCommands commands = keep_snapshots();
    append(commands, has_orders ? carry_out_orders() : pause());
    return commands;
  }
  if (!has_orders) return begin_step();
  --step_;  // As if its update had just ended.
  commit_ = left;
  return carry_out_orders();
}

std::string RankProgram::activity() const {
  if (!running_.empty()) {
    const RankCommand& command = running_.front();
    if (const auto* run = std::get_if<RunAction>(&command)) return to_text(run->action);
    if (std::holds_alternative<RunNorm>(command)) return "the gradient norm";
    if (std::holds_alternative<RunUpdate>(command)) return "the update";
    return "the validation";
  }
  switch (mode_) {
    case Mode::kIdle:
      return "the start";
    case Mode::kCompute:
      if (next_action_ == options_.actions.size()) return "the end";
      return absl::StrCat("the input of ", to_text(options_.actions[next_action_]));
    case Mode::kReduce:
      return "the reduction";
    case Mode::kWait:
      return "the commit";
    case Mode::kCombine:
      return "its group";
    case Mode::kPause:
      return awaits_commit_ ? "the commit" : "samples";
    case Mode::kValidate:
      return "a validation input";
    default:
      return "the end";
  }
}

RankCommands RankProgram::on_input(const InputKey& key) {
  // Neighbours are at most one commit ahead: their inputs of the next step may come early. A
  // neighbour that has started may also be at what was left to do of the step before.
  const bool validates = key.kind == InputKind::kValidation;
  uint64_t step_min = step_;
  if (mode_ == Mode::kIdle && validates && step_ > 0) step_min = step_ - 1;
  // A column validates behind the job's steps, which are not its own.
  if (options_.is_column && validates) step_min = common_steps_ > 0 ? common_steps_ - 1 : 0;
  if (mode_ == Mode::kFinished || key.step < step_min || !inputs_.insert(key).second) return drop();
  if (mode_ == Mode::kCompute) return advance();
  if (mode_ == Mode::kValidate && running_.empty()) return advance_validation();
  return {};
}

RankCommands RankProgram::on_work_done() {
  SKEIN_CHECK(!running_.empty()) << "work ended that was not started";
  const RankCommand ended = running_.front();
  running_.pop_front();
  if (const auto* run = std::get_if<RunAction>(&ended)) return end_action(*run);
  if (const auto* norm = std::get_if<RunNorm>(&ended)) return end_norm(norm->stage);
  if (std::holds_alternative<RunUpdate>(ended)) return end_update();
  ++next_validation_;
  return advance_validation();
}

RankCommands RankProgram::on_group_start(GroupId group, uint64_t step) {
  const auto found = groups_.find(group);
  const bool computes = mode_ == Mode::kCompute || mode_ == Mode::kReduce;
  if (found == groups_.end() || !computes || step != step_ || options_.reduces_early ||
      progress_.at(found->second.stage).actions_left > 0 || found->second.started > 0) {
    return drop();
  }
  RankCommands commands;
  release(group, commands);
  return commands;
}

RankCommands RankProgram::on_group_reduced(GroupId group, uint64_t step, int32_t bucket) {
  const auto found = groups_.find(group);
  const bool computes = mode_ == Mode::kCompute || mode_ == Mode::kReduce;
  if (!computes || step != step_ || found == groups_.end() || !found->second.is_running() ||
      bucket != found->second.reduced) {
    return drop();
  }
  RankCommands commands;
  GroupProgress& progress = found->second;
  if (++progress.reduced < progress.bucket_count) {
    release(group, commands);
    return commands;
  }
  if (--progress_.at(progress.stage).groups_left > 0) return commands;
  norms_.push_back(progress.stage);
  return advance();
}

void RankProgram::release(GroupId group, RankCommands& commands) {
  GroupProgress& progress = groups_.at(group);
  if (progress.is_running() || progress.started == progress.bucket_count) return;
  // The last bucket is complete with the last part, the one before it with the part before.
  const int32_t parts_left = progress_.at(progress.stage).parts_left;
  if (parts_left > progress.bucket_count - 1 - progress.started) return;
  commands.push_back(RunReduction{group, step_, progress.started++});
}

RankCommands RankProgram::on_commit(const CommitOrder& commit) {
  if (options_.is_column) {
    if (!awaits_commit_ || commit.step + 1 != common_steps_) return drop();
    awaits_commit_ = false;
    commit_ = commit;
    RankCommands commands = keep_snapshots();
    append(commands, carry_out_orders());
    return commands;
  }
  if (mode_ != Mode::kWait || commit.step != step_) return drop();
  mode_ = Mode::kUpdate;
  commit_ = commit;
  running_.push_back(RunUpdate{commit});
  return {running_.back()};
}

RankCommands RankProgram::begin_step() {
  mode_ = Mode::kCompute;
  next_action_ = 0;
  ended_actions_ = 0;
  groups_.clear();
  progress_.clear();
  for (const StageRole& each : options_.stages) {
    StageProgress& progress = progress_[each.stage];
    progress.groups_left = each.groups.size();
    progress.parts_left = 1;
    for (const GroupRole& group : each.groups) {
      groups_[group.group] = {each.stage, group.bucket_count, 0, 0};
      progress.parts_left = std::max(progress.parts_left, group.bucket_count);
    }
  }
  for (const Action& action : options_.actions) {
    StageProgress& progress = progress_.at(action.stage);
    progress.actions_left = ++progress.actions;
  }
  return advance();
}

RankCommands RankProgram::advance() {
  RankCommands commands;
  while (running_.size() < kRunningMax || next_part_ > 0) {
    if (!norms_.empty() && next_part_ == 0) {
      running_.push_back(RunNorm{step_, norms_.front()});
      norms_.pop_front();
    } else if (can_start_action()) {
      running_.push_back(start_action());
    } else {
      break;
    }
    commands.push_back(running_.back());
  }
  return commands;
}

/// Takes the next action's input if it is there.
bool RankProgram::can_start_action() {
  if (next_part_ > 0) return true;
  if (mode_ != Mode::kCompute || next_action_ == options_.actions.size()) return false;
  const Action& action = options_.actions[next_action_];
  const StageRole& own = role(action.stage);
  const bool is_forward = action.type == ActionType::kForward;
  // A backward of the weights works on what the backward of the input left behind.
  const bool needs_input =
      is_forward ? !own.is_first : !own.is_last && action.type != ActionType::kBackwardWeight;
  const InputKind kind = is_forward ? InputKind::kActivation : InputKind::kGradient;
  return !needs_input || inputs_.erase(InputKey{kind, step_, action.stage, action.microbatch}) > 0;
}

RunAction RankProgram::start_action() {
  StageProgress& progress = progress_.at(options_.actions[next_action_].stage);
  RunAction run;
  run.step = step_;
  run.action = options_.actions[next_action_];
  run.begins_step = progress.actions_started == 0;
  run.ends_step = progress.actions_started + 1 == progress.actions;
  // None of them has ended: they are all started now.
  if (run.ends_step) run.part_count = progress.parts_left;
  run.part = next_part_;
  if (!run.is_last_part()) {
    ++next_part_;
    return run;
  }
  next_part_ = 0;
  ++next_action_;
  ++progress.actions_started;
  return run;
}

void RankProgram::release_all(int32_t stage, RankCommands& commands) {
  if (!options_.reduces_early) return;
  for (const GroupRole& each : role(stage).groups) release(each.group, commands);
}

RankCommands RankProgram::end_action(const RunAction& run) {
  const int32_t stage = run.action.stage;
  StageProgress& progress = progress_.at(stage);
  RankCommands commands;
  if (run.is_last_part() && --progress.actions_left == 0) {
    // Without groups the last action has computed the norm as well.
    progress.is_final = progress.groups_left == 0;
    commands.push_back(SendReady{step_, stage});
  }
  if (run.ends_step) {
    --progress.parts_left;
    release_all(stage, commands);
  }
  if (run.is_last_part() && ++ended_actions_ == options_.actions.size()) mode_ = Mode::kReduce;
  settle();
  append(commands, advance());
  return commands;
}

RankCommands RankProgram::end_norm(int32_t stage) {
  progress_.at(stage).is_final = true;
  RankCommands commands = {SendReduced{step_, stage}};
  settle();
  append(commands, advance());
  return commands;
}

/// Goes on to wait for the commit when every stage's gradient is final.
void RankProgram::settle() {
  const bool final = std::all_of(progress_.begin(), progress_.end(),
                                 [](const auto& each) { return each.second.is_final; });
  if (mode_ == Mode::kReduce && final) mode_ = Mode::kWait;
}

RankCommands RankProgram::end_update() {
  if (options_.is_column) return next_ ? begin_combining() : end_combining();
  RankCommands commands = keep_snapshots();
  append(commands, carry_out_orders());
  return commands;
}

RankCommands RankProgram::keep_snapshots() const {
  RankCommands commands;
  for (const StageRole& each : options_.stages) {
    if (commit_->snapshot && each.leads) {
      commands.push_back(KeepSnapshot{order_step() + 1, each.stage});
    }
  }
  return commands;
}

RankCommands RankProgram::carry_out_orders() {
  RankCommands commands;
  if (commit_->checkpoint) {
    for (const StageRole& each : options_.stages) {
      if (each.leads) commands.push_back(SaveState{order_step() + 1, each.stage});
    }
  }
  if (commit_->validate && options_.validation_batches > 0) {
    mode_ = Mode::kValidate;
    validation_role_ = 0;
    next_validation_ = 0;
    append(commands, advance_validation());
    return commands;
  }
  append(commands, end_validation());
  return commands;
}

/// All micro-batches through one stage, then through the rank's next one: by then its inputs have
/// come around.
RankCommands RankProgram::advance_validation() {
  RankCommands commands;
  if (next_validation_ == options_.validation_batches) {
    const StageRole& ended = options_.stages[validation_role_];
    if (ended.is_last) commands.push_back(SendValidated{order_step(), ended.stage});
    next_validation_ = 0;
    if (++validation_role_ == options_.stages.size()) {
      append(commands, end_validation());
      return commands;
    }
  }
  const StageRole& own = options_.stages[validation_role_];
  if (!own.is_first && inputs_.erase(InputKey{InputKind::kValidation, order_step(), own.stage,
                                              next_validation_}) == 0) {
    return commands;
  }
  running_.push_back(
      RunValidation{order_step(), own.stage, next_validation_, next_validation_ == 0});
  commands.push_back(running_.back());
  return commands;
}

/// Leaves the committed step behind, whether there was a validation pass or not.
RankCommands RankProgram::end_validation() {
  const bool last = commit_->last;
  if (!options_.is_column) ++step_;
  commit_.reset();
  if (last) {
    mode_ = Mode::kFinished;
    return {};
  }
  return options_.is_column ? pause() : begin_step();
}

SampleLease RankProgram::samples() const {
  if (options_.is_column) return lease_;
  return {step_ * options_.samples_per_step, options_.samples_per_step};
}

uint64_t RankProgram::steps_done() const {
  if (options_.is_column) return common_steps_;
  return mode_ == Mode::kValidate ? step_ + 1 : step_;
}

const RankProgram::StageRole& RankProgram::role(int32_t stage) const {
  const auto found = std::find_if(options_.stages.begin(), options_.stages.end(),
                                  [&](const StageRole& each) { return each.stage == stage; });
  SKEIN_CHECK(found != options_.stages.end()) << "stage " << stage << " is not of this rank";
  return *found;
}

RankCommands RankProgram::drop() {
  ++dropped_;
  return {};
}

}  // namespace skein::plans
