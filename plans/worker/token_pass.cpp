#include "plans/worker/token_pass.hpp"

#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"

namespace skein::plans {

TokenPass::TokenPass(Options options) : options_(std::move(options)), step_(options_.first_step) {
  SKEIN_CHECK(!options_.stages.empty()) << "a pass needs a stage";
  for (const StageRole& each : options_.stages) {
    SKEIN_CHECK(each.rows > 0 && options_.samples_per_step % static_cast<uint64_t>(each.rows) == 0)
        << "tokens of " << each.rows << " rows";
  }
}

int64_t TokenPass::token_count(const StageRole& role) const {
  return static_cast<int64_t>(options_.samples_per_step) / role.rows;
}

ProgramCommands TokenPass::begin(uint64_t step) {
  SKEIN_CHECK(!is_begun_ || (is_complete() && step > step_)) << "step " << step << " begins early";
  step_ = step;
  is_begun_ = true;
  tokens_.clear();
  finals_ = 0;
  std::erase_if(inputs_, [&](const InputKey& key) { return key.step < step; });
  progress_.clear();
  for (const StageRole& each : options_.stages) {
    progress_[each.stage].groups_left = each.groups.size();
  }
  ProgramCommands commands = {RunBegin{step_}};
  running_.push_back(commands.back());
  for (const auto& [stage, order] : std::exchange(early_, {})) {
    if (order.step != step_) continue;
    ProgramOutcome outcome = carry_out(*find_role(options_.stages, stage), order);
    if (outcome.is_accepted()) append(commands, outcome.decisions());
  }
  return commands;
}

ProgramOutcome TokenPass::on_token(int32_t stage, const TokenOrder& order) {
  const StageRole* role = find_role(options_.stages, stage);
  if (!role) return Dropped{DropReason::kUnknown};
  if (order.token < 0 || order.token >= token_count(*role)) {
    return Dropped{DropReason::kOutOfBounds};
  }
  const uint64_t next = is_begun_ ? step_ + 1 : step_;
  if (order.step == next) {
    // Each token is granted once, its output wanted once, and each stage reduced once.
    size_t most = options_.stages.size();
    for (const StageRole& each : options_.stages) most += 2 * token_count(each);
    if (early_.size() >= most) return Dropped{DropReason::kOutOfBounds};
    early_.emplace_back(stage, order);
    return ProgramCommands();
  }
  if (!is_begun_ || order.step < step_) return Dropped{DropReason::kStale};
  if (order.step > step_) return Dropped{DropReason::kEarly};
  return carry_out(*role, order);
}

ProgramOutcome TokenPass::carry_out(const StageRole& role, const TokenOrder& order) {
  StageProgress& progress = progress_.at(role.stage);
  const Token token{role.stage, order.token};
  const auto own = tokens_.find(token);
  switch (order.kind) {
    case TokenOrder::Kind::kCompute:
      if (own != tokens_.end()) return Dropped{DropReason::kRepeated};
      if (progress.state != StageState::kOpen) return Dropped{DropReason::kUnexpected};
      if (order.others.empty() != role.is_first) return Dropped{DropReason::kOutOfBounds};
      tokens_[token].holders = order.others;
      forwards_.push_back(token);
      return advance();
    case TokenOrder::Kind::kSend:
      if (own == tokens_.end() || own->second.state < TokenState::kHeld || role.is_last) {
        return Dropped{DropReason::kUnexpected};
      }
      if (order.others.size() != 1) return Dropped{DropReason::kOutOfBounds};
      if (std::exchange(own->second.is_sent, true)) return Dropped{DropReason::kRepeated};
      return ProgramCommands{SendOutput{step_, role.stage, order.token, order.others.front()}};
    case TokenOrder::Kind::kReduce:
      if (progress.state != StageState::kOpen) return Dropped{DropReason::kRepeated};
      for (const auto& [each, state] : tokens_) {
        if (each.first == role.stage && state.state != TokenState::kDone) {
          return Dropped{DropReason::kEarly};
        }
      }
      progress.state = StageState::kDone;
      return advance();
  }
  return Dropped{DropReason::kUnknown};
}

ProgramOutcome TokenPass::on_input(const InputKey& key) {
  const StageRole* role = find_role(options_.stages, key.stage);
  const bool is_activation = key.kind == InputKind::kActivation;
  if (!role || (!is_activation && key.kind != InputKind::kGradient) ||
      (is_activation ? role->is_first : role->is_last) || key.microbatch < 0 ||
      key.microbatch >= token_count(*role)) {
    return Dropped{DropReason::kOutOfBounds};
  }
  if (key.step < step_) return Dropped{DropReason::kStale};
  if (key.step > step_ + 1) return Dropped{DropReason::kEarly};
  if (key.step == step_) {
    const auto own = tokens_.find({key.stage, key.microbatch});
    const TokenState used = is_activation ? TokenState::kComputing : TokenState::kReturning;
    if (own != tokens_.end() && own->second.state >= used) return Dropped{DropReason::kRepeated};
  }
  if (!inputs_.insert(key).second) return Dropped{DropReason::kRepeated};
  return is_begun_ && key.step == step_ ? advance() : ProgramCommands();
}

ProgramCommands TokenPass::advance() {
  ProgramCommands commands;
  while (running_.size() < kRunningMax && start_next(commands)) {
  }
  return commands;
}

bool TokenPass::start_next(ProgramCommands& commands) {
  return start_stage_work(commands) || start_backward(commands) || start_forward(commands);
}

bool TokenPass::start_stage_work(ProgramCommands& commands) {
  for (auto& [stage, progress] : progress_) {
    if (progress.state == StageState::kDone) {
      progress.state = StageState::kSharing;
      commands.push_back(RunShare{step_, stage});
    } else if (progress.state == StageState::kReduced) {
      progress.state = StageState::kNorm;
      commands.push_back(RunNorm{step_, stage});
    } else {
      continue;
    }
    running_.push_back(commands.back());
    return true;
  }
  return false;
}

/// In the last stage it follows its forward, which the device may still have, before any other
/// forward of that stage: exact sums need that (`gpu::StageModelOptions`).
bool TokenPass::start_backward(ProgramCommands& commands) {
  for (auto own = tokens_.rbegin(); own != tokens_.rend(); ++own) {
    const auto [stage, number] = own->first;
    const TokenState state = own->second.state;
    const bool is_last = find_role(options_.stages, stage)->is_last;
    const bool may = state == TokenState::kHeld || (is_last && state == TokenState::kComputing);
    if (!may) continue;
    if (!is_last && inputs_.erase({InputKind::kGradient, step_, stage, number}) == 0) continue;
    start(own->first, ActionType::kBackward, commands);
    own->second.state = TokenState::kReturning;
    return true;
  }
  return false;
}

bool TokenPass::start_forward(ProgramCommands& commands) {
  for (auto next = forwards_.begin(); next != forwards_.end(); ++next) {
    const Token token = *next;
    const InputKey input{InputKind::kActivation, step_, token.first, token.second};
    if (!find_role(options_.stages, token.first)->is_first && inputs_.erase(input) == 0) continue;
    forwards_.erase(next);
    start(token, ActionType::kForward, commands);
    tokens_.at(token).state = TokenState::kComputing;
    return true;
  }
  return false;
}

void TokenPass::start(const Token& token, ActionType type, ProgramCommands& commands) {
  RunAction run;
  run.step = step_;
  run.action = {token.first, type, token.second};
  running_.emplace_back(run);
  commands.emplace_back(run);
}

ProgramCommands TokenPass::on_work_done() {
  SKEIN_CHECK(!running_.empty()) << "work ended that was not started";
  const ProgramCommand ended = running_.front();
  running_.pop_front();
  ProgramCommands commands;
  if (const auto* run = std::get_if<RunAction>(&ended)) {
    commands = end_action(*run);
  } else if (std::holds_alternative<RunBegin>(ended)) {
    const int32_t stage = options_.stages.front().stage;
    commands.push_back(SendTokenReport{step_, stage, 0, TokenEvent::kBegun});
  } else if (const auto* share = std::get_if<RunShare>(&ended)) {
    end_share(share->stage, commands);
  } else {
    const int32_t stage = std::get<RunNorm>(ended).stage;
    commands.push_back(SendReduced{step_, stage});
    finish(progress_.at(stage));
  }
  append(commands, advance());
  return commands;
}

ProgramCommands TokenPass::end_action(const RunAction& run) {
  const Token token{run.action.stage, run.action.microbatch};
  OwnToken& own = tokens_.at(token);
  const bool is_done = run.action.type == ActionType::kBackward;
  if (is_done) own.state = TokenState::kDone;
  // Its backward may be with the device already.
  if (!is_done && own.state == TokenState::kComputing) own.state = TokenState::kHeld;
  // Nobody takes an output of the last stage: its backward follows at once.
  if (!is_done && find_role(options_.stages, token.first)->is_last) return {};
  return {SendTokenReport{step_, token.first, token.second,
                          is_done ? TokenEvent::kDone : TokenEvent::kOutput}};
}

/// Without groups the norm was computed as well.
void TokenPass::end_share(int32_t stage, ProgramCommands& commands) {
  StageProgress& progress = progress_.at(stage);
  commands.push_back(SendReady{step_, stage});
  if (progress.groups_left == 0) return finish(progress);
  progress.state = StageState::kReducing;
  for (const GroupRole& each : find_role(options_.stages, stage)->groups) {
    reduced_[each.group] = 0;
    commands.push_back(RunReduction{each.group, step_, 0});
  }
}

ProgramOutcome TokenPass::on_group_reduced(GroupId group, uint64_t step, int32_t bucket) {
  const auto under_way = reduced_.find(group);
  if (step != step_ || under_way == reduced_.end() || under_way->second != bucket) {
    return Dropped{DropReason::kStale};
  }
  for (const StageRole& role : options_.stages) {
    for (const GroupRole& each : role.groups) {
      if (each.group != group) continue;
      if (++under_way->second < each.bucket_count) {
        return ProgramCommands{RunReduction{group, step_, under_way->second}};
      }
      reduced_.erase(under_way);
      StageProgress& progress = progress_.at(role.stage);
      if (--progress.groups_left == 0) progress.state = StageState::kReduced;
      return advance();
    }
  }
  return Dropped{DropReason::kUnknown};
}

void TokenPass::finish(StageProgress& progress) {
  progress.state = StageState::kFinal;
  ++finals_;
}

std::vector<ReplicaId> TokenPass::holders(int32_t stage, int32_t token) const {
  const auto own = tokens_.find({stage, token});
  return own == tokens_.end() ? std::vector<ReplicaId>() : own->second.holders;
}

std::string TokenPass::activity() const {
  if (!running_.empty()) {
    const auto* run = std::get_if<RunAction>(&running_.front());
    if (run != nullptr) return to_text(run->action);
    return std::holds_alternative<RunBegin>(running_.front()) ? "the step" : "the gradients";
  }
  if (!is_begun_) return "the start";
  if (is_complete()) return "the commit";
  if (!forwards_.empty()) {
    return absl::StrCat("the input of ", forwards_.front().first, "F", forwards_.front().second);
  }
  const bool reduces = std::any_of(progress_.begin(), progress_.end(), [](const auto& each) {
    return each.second.state == StageState::kReducing;
  });
  return reduces ? "the reduction" : "a token";
}

void TokenPass::check_invariants() const {
  size_t finals = 0;
  for (const auto& [stage, each] : progress_) {
    finals += each.state == StageState::kFinal ? 1 : 0;
    SKEIN_CHECK(each.state < StageState::kReduced || each.groups_left == 0) << "stage " << stage;
  }
  SKEIN_CHECK(finals == finals_) << finals << " stages are final, not " << finals_;
  size_t granted = 0;
  for (const auto& [token, each] : tokens_) {
    granted += each.state == TokenState::kGranted ? 1 : 0;
    const bool is_open = progress_.at(token.first).state == StageState::kOpen;
    SKEIN_CHECK(is_open || each.state == TokenState::kDone)
        << token.first << "." << token.second << " is not done";
  }
  SKEIN_CHECK(granted == forwards_.size()) << granted << " are granted";
  SKEIN_CHECK(running_.size() <= kRunningMax) << running_.size();
  SKEIN_CHECK(!is_complete() || (running_.empty() && reduced_.empty())) << "step " << step_;
  for (const InputKey& key : inputs_) {
    SKEIN_CHECK(key.step == step_ || key.step == step_ + 1) << "an input of step " << key.step;
  }
}

}  // namespace skein::plans
