#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::plans {

enum class ScheduleKind { kGPipe, k1F1B };

/// What a replica computes in one slot, in PyTorch's notation: F forward, B whole backward, I
/// backward of the input, W backward of the weights.
enum class ActionType { kForward, kBackward, kBackwardInput, kBackwardWeight };

struct Action {
  int32_t stage = 0;
  ActionType type = ActionType::kForward;
  int32_t microbatch = 0;
  bool operator==(const Action&) const = default;
};

/// "GPipe" or "1F1B". InvalidArgument with the names that exist.
absl::StatusOr<ScheduleKind> parse_schedule_kind(std::string_view name);
std::string_view to_text(ScheduleKind kind);

/// "0F3", "1B0".
std::string to_text(const Action& action);
absl::StatusOr<Action> parse_action(std::string_view text);

/// The actions of every replica of `stage`, in order.
/// GPipe: all forwards, then all backwards in the order of the micro-batches (GPipe, NeurIPS'19,
/// section 2.3; backward order as in PyTorch's pipelining). 1F1B: min(M, S - stage) forwards, then
/// one backward and one forward in turn (PipeDream-2BW and DAPPLE, PPoPP'21, section 3.2).
/// `stage` in [0, S), `stage_count` = S >= 1, `microbatch_count` = M >= 1.
std::vector<Action> schedule_actions(ScheduleKind kind, int32_t stage, int32_t stage_count,
                                     int32_t microbatch_count);

/// Largest number of micro-batches whose forward is done and whose backward is not, at any point of
/// `actions`.
int32_t stash_peak(const std::vector<Action>& actions);

/// One line per stage, actions joined by commas: the file format of PyTorch's pipelining.
std::string to_csv(const std::vector<std::vector<Action>>& stages);
absl::StatusOr<std::vector<std::vector<Action>>> parse_csv(std::string_view text);

/// Checks that the lists of all stages can be executed: every F and B of every micro-batch exactly
/// once, each B behind its F, and no deadlock. The message names the first offending action.
absl::Status validate_schedule(const std::vector<std::vector<Action>>& stages,
                               int32_t microbatch_count);

}  // namespace skein::plans
