#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::plans {

/// What a rank computes in one slot, in PyTorch's notation: F forward, B whole backward, I backward
/// of the input, W backward of the weights. A B is an I and a W in one.
enum class ActionType { kForward, kBackward, kBackwardInput, kBackwardWeight };

struct Action {
  int32_t stage = 0;
  ActionType type = ActionType::kForward;
  int32_t microbatch = 0;
  bool operator==(const Action&) const = default;
};

/// The actions of one rank in order. A rank is a worker or, where its stages are replicated, the
/// workers that hold copies of the same stages: they all do the same on their rows.
using ActionList = std::vector<Action>;

/// One list per rank. Every stage belongs to exactly one rank; a rank may hold several stages.
using Schedule = std::vector<ActionList>;

/// "0F3", "1B0".
std::string to_text(const Action& action);
/// InvalidArgument   with an example if `text` is no action.
absl::StatusOr<Action> parse_action(std::string_view text);

/// Largest number of micro-batches of `stage` whose forward is done and whose backward (B or W) is
/// not, at any point of `actions`.
int32_t stash_peak(const ActionList& actions, int32_t stage);

/// Largest number of bytes that the stashes of all stages in `actions` take at any point, a stash
/// of stage s `stash_bytes[s]` from its F to its B or W.
int64_t stash_peak_bytes(const ActionList& actions, const std::vector<int64_t>& stash_bytes);

}  // namespace skein::plans
