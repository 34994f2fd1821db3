#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "plans/schedule/schedule_shape.hpp"

namespace skein::plans {

/// How many forwards K a stage s runs before its first backward; S stages, M micro-batches, D
/// stashes that fit (unlimited: D >= M).
enum class WarmUp {
  kAll,  // M: GPipe, NeurIPS'19, section 2.3. ResourceExhausted (make_schedule) if D < M.
  kPA,   // min(S - s, D): DAPPLE, PPoPP'21, section 3.2; also 1F1B of PipeDream-2BW and Megatron.
  kPB,   // min(2 (S - s) - 1, D): DAPPLE, section 3.2, where transfers take as long as computing.
};

/// K forwards, then one backward and one forward in turn, for one stage per rank. A stage holds at
/// most min(M, K) stashes. With equal stages and no transfer time the makespan of all three is
/// (M + S - 1) (F + B) if D does not bind (for kPB, which runs forwards earlier, not sooner).
/// The micro-batches go backwards in the order of their forwards, GPipe's too, as in PyTorch.
///
/// Differs: D is a number per stage, since stages and limits differ; a stage never warms up further
/// than the one in front of it can feed it (K does not grow with s), else they would wait for each
/// other forever.
/// ResourceExhausted   if a rank has no room for one stash. `costs` is written out.
absl::StatusOr<Schedule> early_backward(WarmUp warm_up, const ScheduleShape& shape,
                                        const ScheduleCosts& costs);

}  // namespace skein::plans
