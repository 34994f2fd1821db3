#include "plans/schedule/validate_schedule.hpp"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"
#include "plans/schedule/walk_schedule.hpp"

namespace skein::plans {
namespace {

std::string place(const Schedule& schedule, size_t rank, size_t index) {
  return absl::StrCat("rank ", rank, ", action ", index, " (", to_text(schedule[rank][index]),
                      "): ");
}

/// What the lists hold of each stage.
struct StageCensus {
  std::vector<int32_t> rank_of;  // [S]
  std::vector<size_t> actions;   // [S] how many.
};

/// Where each stage lives, or an error if a stage is on two ranks, missing, or out of range.
absl::StatusOr<StageCensus> count_stages(const Schedule& schedule) {
  size_t total = 0;
  for (const ActionList& actions : schedule) total += actions.size();
  StageCensus census;
  for (size_t rank = 0; rank < schedule.size(); ++rank) {
    for (size_t i = 0; i < schedule[rank].size(); ++i) {
      const int32_t stage = schedule[rank][i].stage;
      if (stage < 0 || static_cast<size_t>(stage) >= total) {
        return absl::InvalidArgumentError(
            absl::StrCat(place(schedule, rank, i), "there cannot be a stage ", stage, " with ",
                         total, " actions in all; stages count from 0 without gaps"));
      }
      const auto s = static_cast<size_t>(stage);
      if (s >= census.rank_of.size()) {
        census.rank_of.resize(s + 1, -1);
        census.actions.resize(s + 1, 0);
      }
      if (census.rank_of[s] < 0) census.rank_of[s] = static_cast<int32_t>(rank);
      if (census.rank_of[s] != static_cast<int32_t>(rank)) {
        return absl::InvalidArgumentError(absl::StrCat(place(schedule, rank, i), "stage ", stage,
                                                       " is on ranks ", census.rank_of[s], " and ",
                                                       rank, "; a stage belongs to one rank"));
      }
      ++census.actions[s];
    }
  }
  const auto missing = std::find(census.rank_of.begin(), census.rank_of.end(), -1);
  if (missing != census.rank_of.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no rank has actions of stage ", missing - census.rank_of.begin(),
                     ", but there is a stage ", census.rank_of.size() - 1));
  }
  if (census.rank_of.empty()) return absl::InvalidArgumentError("the schedule has no actions");
  return census;
}

/// Counts of one micro-batch on one stage.
struct Seen {
  bool forward = false;
  bool backward_input = false;
  bool backward_weight = false;
};

/// Marks `action`, or returns why it may not stand here, given what its stage has done.
const char* mark(Seen& seen, ActionType type) {
  if (type == ActionType::kForward) {
    if (seen.forward) return "this forward appears twice";
    seen.forward = true;
    return nullptr;
  }
  if (!seen.forward) return "a backward stands before its forward";
  if (type == ActionType::kBackwardWeight) {
    if (!seen.backward_input) return "a W stands before its I";
    if (seen.backward_weight) return "this backward appears twice";
    seen.backward_weight = true;
    return nullptr;
  }
  if (seen.backward_input) return "this backward appears twice";
  seen.backward_input = true;
  if (type == ActionType::kBackward) seen.backward_weight = true;
  return nullptr;
}

/// What each stage has done with each micro-batch. A stage with fewer than M actions lacks one of
/// its first micro-batches, so no more are kept of it than it has actions, plus one.
class Progress {
 public:
  Progress(const StageCensus& census, int32_t microbatch_count) {
    for (size_t actions : census.actions) {
      seen_.emplace_back(std::min(static_cast<size_t>(microbatch_count), actions + 1));
    }
  }

  const char* mark_action(const Action& action) {
    std::vector<Seen>& stage = seen_[static_cast<size_t>(action.stage)];
    const auto m = static_cast<size_t>(action.microbatch);
    return m < stage.size() ? mark(stage[m], action.type) : nullptr;
  }

  absl::Status check_complete() const {
    for (size_t s = 0; s < seen_.size(); ++s) {
      for (size_t m = 0; m < seen_[s].size(); ++m) {
        const Seen& seen = seen_[s][m];
        if (seen.backward_weight) continue;
        const char* what = !seen.forward ? "the forward" : "a backward (a B, or an I and a W)";
        return absl::InvalidArgumentError(
            absl::StrCat("stage ", s, " lacks ", what, " of micro-batch ", m));
      }
    }
    return absl::OkStatus();
  }

 private:
  std::vector<std::vector<Seen>> seen_;  // [S][<= M]
};

absl::Status check_actions(const Schedule& schedule, int32_t microbatch_count,
                           const StageCensus& census) {
  Progress progress(census, microbatch_count);
  for (size_t rank = 0; rank < schedule.size(); ++rank) {
    for (size_t i = 0; i < schedule[rank].size(); ++i) {
      const Action& action = schedule[rank][i];
      if (action.microbatch < 0 || action.microbatch >= microbatch_count) {
        return absl::InvalidArgumentError(absl::StrCat(place(schedule, rank, i), "there are ",
                                                       microbatch_count,
                                                       " micro-batches, counted from 0"));
      }
      if (const char* why = progress.mark_action(action)) {
        return absl::InvalidArgumentError(absl::StrCat(place(schedule, rank, i), why));
      }
    }
  }
  return progress.check_complete();
}

absl::Status check_deadlock(const Schedule& schedule, int32_t microbatch_count,
                            const StageCensus& census) {
  const std::vector<size_t> done =
      walk_schedule(schedule, census.rank_of, microbatch_count, [](size_t, const Action&) {});
  for (size_t rank = 0; rank < schedule.size(); ++rank) {
    if (done[rank] == schedule[rank].size()) continue;
    const Action& action = schedule[rank][done[rank]];
    const bool is_forward = action.type == ActionType::kForward;
    const int32_t from = is_forward ? action.stage - 1 : action.stage + 1;
    return absl::InvalidArgumentError(
        absl::StrCat(place(schedule, rank, done[rank]), "deadlock, its input from stage ", from,
                     " on rank ", census.rank_of[static_cast<size_t>(from)], " never comes"));
  }
  return absl::OkStatus();
}

absl::Status check_stashes(const Schedule& schedule, const StashLimits& limits) {
  for (size_t rank = 0; rank < schedule.size(); ++rank) {
    int64_t left = limits.limit_bytes[rank];
    for (size_t i = 0; i < schedule[rank].size(); ++i) {
      const Action& action = schedule[rank][i];
      const int64_t bytes = limits.stash_bytes[static_cast<size_t>(action.stage)];
      if (action.type == ActionType::kForward) {
        if (bytes > left) {
          return absl::ResourceExhaustedError(absl::StrCat(
              place(schedule, rank, i), "its stash of ", bytes, " bytes exceeds the limit of ",
              limits.limit_bytes[rank], " by ", bytes - left, "; run a B or W in front of it"));
        }
        left -= bytes;
      } else if (action.type != ActionType::kBackwardInput) {
        left += bytes;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status validate_schedule(const Schedule& schedule, int32_t microbatch_count) {
  if (microbatch_count < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a schedule needs micro-batches, there are ", microbatch_count));
  }
  SKEIN_ASSIGN_OR_RETURN(const StageCensus census, count_stages(schedule));
  SKEIN_RETURN_IF_ERROR(check_actions(schedule, microbatch_count, census));
  return check_deadlock(schedule, microbatch_count, census);
}

absl::Status validate_schedule(const Schedule& schedule, int32_t microbatch_count,
                               const StashLimits& limits) {
  SKEIN_RETURN_IF_ERROR(validate_schedule(schedule, microbatch_count));
  int32_t stage_count = 0;
  for (const ActionList& actions : schedule) {
    for (const Action& action : actions) stage_count = std::max(stage_count, action.stage + 1);
  }
  if (limits.limit_bytes.size() != schedule.size() ||
      limits.stash_bytes.size() != static_cast<size_t>(stage_count)) {
    return absl::InvalidArgumentError(
        absl::StrCat("limits of ", limits.limit_bytes.size(), " ranks and stashes of ",
                     limits.stash_bytes.size(), " stages do not fit a schedule of ",
                     schedule.size(), " ranks and ", stage_count, " stages"));
  }
  return check_stashes(schedule, limits);
}

}  // namespace skein::plans
