#include "plans/schedule.hpp"

#include <algorithm>
#include <charconv>
#include <map>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::plans {
namespace {

constexpr char kLetters[] = {'F', 'B', 'I', 'W'};

absl::Status bad_action(std::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", std::string(text), "\" is no action; expected for example 0F3 or 1B0"));
}

/// Reads a non-negative number from the front of `text` and removes it.
bool take_number(std::string_view& text, int32_t& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || value < 0 || stop == text.data()) return false;
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
  return true;
}

/// Counts of one micro-batch on one stage.
struct Seen {
  bool forward = false;
  bool backward_input = false;
  bool backward_weight = false;
};

/// True, and marks it, if `action` may run now given what its stage has done.
absl::Status mark(Seen& seen, const Action& action) {
  auto refuse = [&](const char* why) {
    return absl::InvalidArgumentError(absl::StrCat(to_text(action), ": ", why));
  };
  if (action.type == ActionType::kForward) {
    if (seen.forward) return refuse("this forward appears twice");
    seen.forward = true;
    return absl::OkStatus();
  }
  if (!seen.forward) return refuse("a backward stands before its forward");
  if (action.type == ActionType::kBackwardWeight) {
    if (!seen.backward_input) return refuse("a W stands before its I");
    if (seen.backward_weight) return refuse("this backward appears twice");
    seen.backward_weight = true;
    return absl::OkStatus();
  }
  if (seen.backward_input) return refuse("this backward appears twice");
  seen.backward_input = true;
  if (action.type == ActionType::kBackward) seen.backward_weight = true;
  return absl::OkStatus();
}

absl::Status check_stage(const std::vector<Action>& actions, int32_t stage,
                         int32_t microbatch_count) {
  std::map<int32_t, Seen> seen;
  for (const Action& action : actions) {
    if (action.stage != stage || action.microbatch < 0 || action.microbatch >= microbatch_count) {
      return absl::InvalidArgumentError(absl::StrCat(to_text(action), ": not of stage ", stage,
                                                     " and micro-batches 0..", microbatch_count));
    }
    SKEIN_RETURN_IF_ERROR(mark(seen[action.microbatch], action));
  }
  for (int32_t m = 0; m < microbatch_count; ++m) {
    if (!seen[m].forward || !seen[m].backward_weight) {
      return absl::InvalidArgumentError(
          absl::StrCat("stage ", stage, " lacks the forward or backward of micro-batch ", m));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ScheduleKind> parse_schedule_kind(std::string_view name) {
  if (name == "GPipe") return ScheduleKind::kGPipe;
  if (name == "1F1B") return ScheduleKind::k1F1B;
  return absl::InvalidArgumentError(absl::StrCat("parallelism.pipeline_parallel_schedule = \"",
                                                 std::string(name),
                                                 "\": must be one of \"GPipe\", \"1F1B\""));
}

std::string_view to_text(ScheduleKind kind) {
  return kind == ScheduleKind::kGPipe ? "GPipe" : "1F1B";
}

std::string to_text(const Action& action) {
  return absl::StrCat(action.stage, std::string(1, kLetters[static_cast<int>(action.type)]),
                      action.microbatch);
}

absl::StatusOr<Action> parse_action(std::string_view text) {
  std::string_view rest = text;
  Action action;
  if (!take_number(rest, action.stage) || rest.empty()) return bad_action(text);
  const char* letter = std::find(std::begin(kLetters), std::end(kLetters), rest.front());
  if (letter == std::end(kLetters)) return bad_action(text);
  action.type = static_cast<ActionType>(letter - std::begin(kLetters));
  rest.remove_prefix(1);
  if (!take_number(rest, action.microbatch) || !rest.empty()) return bad_action(text);
  return action;
}

std::vector<Action> schedule_actions(ScheduleKind kind, int32_t stage, int32_t stage_count,
                                     int32_t microbatch_count) {
  SKEIN_CHECK(stage >= 0 && stage < stage_count && microbatch_count > 0)
      << "stage " << stage << " of " << stage_count << ", M = " << microbatch_count;
  const int32_t ahead = kind == ScheduleKind::kGPipe
                            ? microbatch_count
                            : std::min(microbatch_count, stage_count - stage);
  std::vector<Action> actions;
  for (int32_t m = 0; m < ahead; ++m) actions.push_back({stage, ActionType::kForward, m});
  for (int32_t m = 0; m < microbatch_count; ++m) {
    actions.push_back({stage, ActionType::kBackward, m});
    if (m + ahead < microbatch_count) {
      actions.push_back({stage, ActionType::kForward, m + ahead});
    }
  }
  return actions;
}

int32_t stash_peak(const std::vector<Action>& actions) {
  int32_t held = 0;
  int32_t peak = 0;
  for (const Action& action : actions) {
    if (action.type == ActionType::kForward) peak = std::max(peak, ++held);
    if (action.type == ActionType::kBackward || action.type == ActionType::kBackwardWeight) --held;
  }
  return peak;
}

std::string to_csv(const std::vector<std::vector<Action>>& stages) {
  std::string csv;
  for (const std::vector<Action>& actions : stages) {
    for (size_t i = 0; i < actions.size(); ++i) {
      absl::StrAppend(&csv, i == 0 ? "" : ",", to_text(actions[i]));
    }
    csv += "\n";
  }
  return csv;
}

absl::StatusOr<std::vector<std::vector<Action>>> parse_csv(std::string_view text) {
  std::vector<std::vector<Action>> stages;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    std::vector<Action>& actions = stages.emplace_back();
    while (!line.empty()) {
      const std::string_view cell = line.substr(0, line.find(','));
      line.remove_prefix(std::min(line.size(), cell.size() + 1));
      if (cell.empty()) continue;  // An idle slot.
      SKEIN_ASSIGN_OR_RETURN(Action action, parse_action(cell));
      actions.push_back(action);
    }
  }
  return stages;
}

absl::Status validate_schedule(const std::vector<std::vector<Action>>& stages,
                               int32_t microbatch_count) {
  for (size_t s = 0; s < stages.size(); ++s) {
    SKEIN_RETURN_IF_ERROR(check_stage(stages[s], static_cast<int32_t>(s), microbatch_count));
  }
  // Runs whatever can run until all is done or nothing can.
  std::vector<size_t> next(stages.size(), 0);
  std::map<std::pair<size_t, int32_t>, Seen> done;
  auto can_run = [&](size_t s, const Action& action) {
    if (action.type == ActionType::kForward) {
      return s == 0 || done[{s - 1, action.microbatch}].forward;
    }
    return action.type == ActionType::kBackwardWeight || s + 1 == stages.size() ||
           done[{s + 1, action.microbatch}].backward_input;
  };
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t s = 0; s < stages.size(); ++s) {
      while (next[s] < stages[s].size() && can_run(s, stages[s][next[s]])) {
        const Action& action = stages[s][next[s]++];
        SKEIN_RETURN_IF_ERROR(mark(done[{s, action.microbatch}], action));
        progress = true;
      }
    }
  }
  for (size_t s = 0; s < stages.size(); ++s) {
    if (next[s] < stages[s].size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(to_text(stages[s][next[s]]), ": deadlock, its input never comes"));
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::plans
