#pragma once

#include "absl/status/statusor.h"
#include "plans/schedule/schedule_shape.hpp"

namespace skein::plans {

enum class ZeroBubble {
  kH1,  // Warm-up of 1F1B, R - r forwards on rank r; at most R stashes on every rank.
  kH2,  // Warm-up of 1F1B-PB, 2 (R - r) - 1 forwards; at most 2R - 1 stashes on every rank.
};

/// Backwards in two halves, for one stage per rank: I goes on at once, W waits until the stashes
/// are used up or nothing else is left, and so fills the end of the pipeline. Source: Qi et al.,
/// Zero Bubble Pipeline Parallelism, ICLR'24, section 2 (ZB-H1 in 2.3.1 with the peak memory of
/// 1F1B, ZB-H2 in 2.3.2). H1 is the order of PyTorch's ScheduleInterleavedZeroBubble with one
/// stage.
///
/// With equal stages, no transfer time and unlimited memory:
///   H1, M >= R        makespan = M (F + I + W) + (R - 1) max(F, I, F + I - W); the paper's bubble
///                     (R - 1) (F + I - W) holds exactly if W <= min(F, I).
///   H2, M >= 2R - 1   no rank idles more than (R - 1) max(0, I - F, F + I - 2W) from its first to
///                     its last action: nothing if F = I = W. The makespan is
///                     M (F + I + W) + (R - 1) max(F, I - F, F + I - 2W): rank r cannot start
///                     before r F. The paper gets rid of these ramps by letting ranks start the
///                     next step at different times; with a barrier between steps H2 gains over H1
///                     only where F + I - W exceeds that maximum (not if F = I = W).
///
/// Differs: stages may differ and memory may be less. Then the warm-up is cut as in
/// early_backward.hpp, and if list scheduling (greedy_schedule.hpp) with the same stashes is
/// shorter, that is the result; also 1F1B, and H1 for H2. So for any costs the makespan of H1 is at
/// most that of 1F1B and the one of H2 at most that of H1, as far as `makespan_us` counts.
/// ResourceExhausted   if a rank has no room for one stash. `costs` is written out.
absl::StatusOr<Schedule> zero_bubble(ZeroBubble variant, const ScheduleShape& shape,
                                     const ScheduleCosts& costs);

}  // namespace skein::plans
