#include "plans/worker/pipeline_pass.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"

namespace skein::plans {

PipelinePass::PipelinePass(Options options)
    : options_(std::move(options)), step_(options_.first_step) {
  SKEIN_CHECK(!options_.actions.empty() && !options_.stages.empty()) << "a pass needs actions";
  for (const Action& action : options_.actions) {
    for (const InputKey& input : inputs_of(action, 0, true, true)) takes_.insert(input);
  }
}

ProgramCommands PipelinePass::begin(uint64_t step) {
  const bool is_next = phase_ == Phase::kIdle ? step >= step_ : is_complete() && step > step_;
  SKEIN_CHECK(is_next) << "pass " << step << " begins in " << step_;
  step_ = step;
  phase_ = Phase::kCompute;
  next_action_ = 0;
  ended_actions_ = 0;
  groups_.clear();
  progress_.clear();
  used_.clear();
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

ProgramOutcome PipelinePass::on_input(const InputKey& key) {
  if (key.step < step_ || (is_complete() && key.step == step_)) return Dropped{DropReason::kStale};
  InputKey place = key;
  place.step = 0;
  if (!takes_.contains(place)) return Dropped{DropReason::kOutOfBounds};
  if (key.step > step_ + 1) return Dropped{DropReason::kEarly};
  if (used_.contains(key) || !inputs_.insert(key).second) return Dropped{DropReason::kRepeated};
  return computes() ? advance() : ProgramCommands();
}

ProgramCommands PipelinePass::on_work_done() {
  SKEIN_CHECK(!running_.empty()) << "work ended that was not started";
  const ProgramCommand ended = running_.front();
  running_.pop_front();
  if (const auto* run = std::get_if<RunAction>(&ended)) return end_action(*run);
  return end_norm(std::get<RunNorm>(ended).stage);
}

ProgramOutcome PipelinePass::on_group_reduced(GroupId group, uint64_t step, int32_t bucket) {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return Dropped{DropReason::kUnknown};
  GroupProgress& progress = found->second;
  if (step != step_ || bucket < progress.reduced) return Dropped{DropReason::kStale};
  if (!progress.is_running() || bucket > progress.reduced) return Dropped{DropReason::kEarly};
  ProgramCommands commands;
  if (++progress.reduced < progress.bucket_count) {
    release(group, commands);
    return commands;
  }
  SKEIN_CHECK(progress_.at(progress.stage).groups_left > 0) << "group " << group.value;
  if (--progress_.at(progress.stage).groups_left > 0) return commands;
  norms_.push_back(progress.stage);
  return advance();
}

void PipelinePass::release(GroupId group, ProgramCommands& commands) {
  GroupProgress& progress = groups_.at(group);
  if (progress.is_running() || progress.started == progress.bucket_count) return;
  // The last bucket is complete with the last part, the one before it with the part before.
  const int32_t parts_left = progress_.at(progress.stage).parts_left;
  if (parts_left > progress.bucket_count - 1 - progress.started) return;
  commands.push_back(RunReduction{group, step_, progress.started++});
}

ProgramCommands PipelinePass::advance() {
  ProgramCommands commands;
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
bool PipelinePass::can_start_action() {
  if (next_part_ > 0) return true;
  if (!computes() || next_action_ == options_.actions.size()) return false;
  const Action& action = options_.actions[next_action_];
  const StageProgress& progress = progress_.at(action.stage);
  const std::vector<InputKey> needed = inputs_of(action, step_, progress.actions_started == 0,
                                                 progress.actions_started + 1 == progress.actions);
  const bool are_there = std::all_of(needed.begin(), needed.end(),
                                     [&](const InputKey& key) { return inputs_.contains(key); });
  if (!are_there) return false;
  for (const InputKey& key : needed) {
    inputs_.erase(key);
    used_.insert(key);
  }
  return true;
}

std::vector<InputKey> PipelinePass::inputs_of(const Action& action, uint64_t step, bool begins,
                                              bool ends) const {
  const StageRole& own = role(action.stage);
  std::vector<InputKey> inputs;
  if (own.has_tied_end && own.is_last && begins) {
    inputs.push_back({InputKind::kTiedWeights, step, action.stage, 0});
  }
  if (own.has_tied_end && own.is_first && ends) {
    inputs.push_back({InputKind::kTiedGradient, step, action.stage, 0});
  }
  const bool is_forward = action.type == ActionType::kForward;
  // A backward of the weights works on what the backward of the input left behind.
  const bool needs_input =
      is_forward ? !own.is_first : !own.is_last && action.type != ActionType::kBackwardWeight;
  if (needs_input) {
    const InputKind kind = is_forward ? InputKind::kActivation : InputKind::kGradient;
    inputs.push_back({kind, step, action.stage, action.microbatch});
  }
  return inputs;
}

RunAction PipelinePass::start_action() {
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

ProgramCommands PipelinePass::end_action(const RunAction& run) {
  const int32_t stage = run.action.stage;
  StageProgress& progress = progress_.at(stage);
  SKEIN_CHECK(progress.actions_left > 0) << "stage " << stage << " has no action left to end";
  ProgramCommands commands;
  if (run.is_last_part() && --progress.actions_left == 0) {
    // Without groups the last action has computed the norm as well.
    progress.is_final = progress.groups_left == 0;
    commands.push_back(SendReady{step_, stage});
  }
  if (run.ends_step) {
    --progress.parts_left;
    for (const GroupRole& each : role(stage).groups) release(each.group, commands);
  }
  if (run.is_last_part() && ++ended_actions_ == options_.actions.size()) phase_ = Phase::kReduce;
  settle();
  append(commands, advance());
  return commands;
}

ProgramCommands PipelinePass::end_norm(int32_t stage) {
  progress_.at(stage).is_final = true;
  ProgramCommands commands = {SendReduced{step_, stage}};
  settle();
  append(commands, advance());
  return commands;
}

/// Completes the pass when every stage's gradient is final.
void PipelinePass::settle() {
  const bool are_final = std::all_of(progress_.begin(), progress_.end(),
                                     [](const auto& each) { return each.second.is_final; });
  if (phase_ != Phase::kReduce || !are_final) return;
  phase_ = Phase::kComplete;
  SKEIN_CHECK(running_.empty() && norms_.empty()) << "pass " << step_ << " is not complete";
}

std::string PipelinePass::activity() const {
  if (!running_.empty()) {
    const auto* run = std::get_if<RunAction>(&running_.front());
    return run ? to_text(run->action) : "the gradient norm";
  }
  switch (phase_) {
    case Phase::kIdle:
      return "the start";
    case Phase::kCompute:
      if (next_action_ == options_.actions.size()) return "the end";
      return absl::StrCat("the input of ", to_text(options_.actions[next_action_]));
    case Phase::kReduce:
      return "the reduction";
    case Phase::kComplete:
      return "the commit";
  }
  return "the end";
}

void PipelinePass::check_invariants() const {
  size_t actions_left = 0;
  for (const auto& [stage, each] : progress_) {
    actions_left += each.actions_left;
    SKEIN_CHECK(each.actions_started <= each.actions &&
                each.actions - each.actions_left <= each.actions_started)
        << "stage " << stage << " has ended more actions than were started";
    SKEIN_CHECK(!each.is_final || (each.actions_left == 0 && each.groups_left == 0))
        << "stage " << stage << " is final too early";
    SKEIN_CHECK(!is_complete() || each.is_final) << "stage " << stage << " is not final";
  }
  SKEIN_CHECK(phase_ == Phase::kIdle || actions_left == options_.actions.size() - ended_actions_)
      << actions_left << " actions left, " << ended_actions_ << " ended";
  SKEIN_CHECK(ended_actions_ <= next_action_ && next_action_ <= options_.actions.size())
      << ended_actions_ << " actions ended, " << next_action_ << " started";
  for (const auto& [group, each] : groups_) {
    SKEIN_CHECK(each.reduced <= each.started && each.started <= each.reduced + 1 &&
                each.started <= each.bucket_count)
        << "group " << group.value << " has started " << each.started << " buckets, reduced "
        << each.reduced;
  }
  for (const InputKey& key : inputs_) {
    SKEIN_CHECK(key.step >= step_ && key.step <= step_ + 1 && !used_.contains(key))
        << "an input of step " << key.step << " in step " << step_;
  }
  SKEIN_CHECK(!is_complete() || running_.empty()) << "a complete pass has work on the device";
}

const StageRole& PipelinePass::role(int32_t stage) const {
  const StageRole* found = find_role(options_.stages, stage);
  SKEIN_CHECK(found != nullptr) << "no replica of stage " << stage << " is here";
  return *found;
}

const StageRole* find_role(const std::vector<StageRole>& stages, int32_t stage) {
  const auto found = std::find_if(stages.begin(), stages.end(),
                                  [&](const StageRole& each) { return each.stage == stage; });
  return found == stages.end() ? nullptr : &*found;
}

}  // namespace skein::plans
