#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/schedule/action.hpp"
#include "plans/schedule/schedule_shape.hpp"

namespace skein::plans {

enum class ScheduleKind {
  kGPipe,            // All forwards, then all backwards.
  k1F1B,             // DAPPLE's early backward, policy PA.
  k1F1BPB,           // DAPPLE's policy PB: about twice the stashes hide the transfers.
  kInterleaved1F1B,  // Megatron's virtual stages.
  kZBH1,             // Zero bubble, with the peak memory of 1F1B.
  kZBH2,             // Zero bubble, with up to 2R - 1 stashes.
  kGreedy,           // List scheduling for any stages, times and limits.
  kCustom,           // Lists that somebody wrote by hand.
};

/// All of them, in the order of the enumeration.
const std::vector<ScheduleKind>& schedule_kinds();

/// "GPipe", "1F1B", "1F1B-PB", "Interleaved1F1B", "ZBH1", "ZBH2", "Greedy", "Custom": PyTorch's
/// names where it has one. InvalidArgument with the names that exist.
absl::StatusOr<ScheduleKind> parse_schedule_kind(std::string_view name);
std::string_view to_text(ScheduleKind kind);

/// The actions of every rank. Where the orders come from, what they promise and what they do with
/// `costs` is written in early_backward.hpp (GPipe, 1F1B, 1F1B-PB), interleaved_1f1b.hpp,
/// zero_bubble.hpp and greedy_schedule.hpp. Without costs all actions take the same time and memory
/// is unlimited.
/// InvalidArgument     if the kind is not made for the shape, or the costs do not fit it; the
///                     message says what it needs. Always for kCustom.
/// ResourceExhausted   if the stashes exceed a limit; the message says which rank lacks how much.
/// Cost                O(actions * log R).
absl::StatusOr<Schedule> make_schedule(ScheduleKind kind, const ScheduleShape& shape,
                                       const ScheduleCosts& costs = {});

}  // namespace skein::plans
