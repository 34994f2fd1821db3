#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "plans/schedule/action.hpp"

namespace skein::plans {

/// One line per rank, actions joined by commas: the file format of PyTorch's pipelining
/// (torch/distributed/pipelining/schedules.py, `_load_csv`, compute only).
std::string to_csv(const Schedule& schedule);

/// Reads what `to_csv` and PyTorch write. Spaces around a cell do not count, lines may end in CR
/// LF.
///   0F3, 0B3, 0I3, 0W3          actions
///   (empty)                     an idle slot: skipped, actions start when their input is there
///   0SEND_F3, RECV_F, SEND_B,   communication: skipped, stages send and receive, gradients are
///   RECV_B, 0UNSHARD, RESHARD,  reduced by the plan's groups, and weights are never sharded
///   REDUCE_GRAD
///   (0F3;1B0)OVERLAP_F_B        one after the other, as PyTorch lowers it
/// An empty line is a rank without actions.
/// InvalidArgument   with line and cell, counted from 1, of the first thing that is none of these.
absl::StatusOr<Schedule> parse_csv(std::string_view text);

}  // namespace skein::plans
