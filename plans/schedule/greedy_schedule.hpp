#pragma once

#include "absl/status/statusor.h"
#include "plans/schedule/schedule_shape.hpp"

namespace skein::plans {

/// A schedule and the time that the scheduler found it to take.
struct TimedSchedule {
  Schedule schedule;
  double makespan_us = 0;
};

/// Two choices that are not right for all pipelines.
struct GreedyRule {
  /// A rank waits for an I or F that is known to arrive before a W that could run would end.
  bool waits = false;
  /// A stage keeps as many F without their I as it takes to keep all ranks busy until the first
  /// gradient comes back, and no more: such an F goes in front of an I, and so does a W that makes
  /// room for it. This alternates like 1F1B and leaves memory for W that are put off.
  bool keeps_ahead = false;
};

/// List scheduling in simulated time, for any stages on any ranks: a free rank takes the first of
///   1. an I whose gradient is there, of the lowest stage (nearest to the end of its way);
///   2. an F whose input is there and that memory permits, of the highest stage;
///   3. a W, of the lowest micro-batch and then the highest stage;
/// so W fill gaps, and run when memory is full and no gradient is there. Source: Qi et al., Zero
/// Bubble Pipeline Parallelism, ICLR'24, section 3.1 (a heuristic with binary choices, all tried).
///
/// Memory permits an F of micro-batch m on rank r if m is the oldest micro-batch that r has not
/// finished, or if, with it, the stashes of all other micro-batches on r leave room for one whole
/// micro-batch (a stash on each stage of r).
///
/// It never gets stuck if one micro-batch fits each rank. (a) The stashes of micro-batches other
/// than the oldest leave room for a whole one: an F that would break this is refused, and when the
/// oldest is finished the next oldest only leaves the others. So the limit holds, and memory never
/// refuses the oldest micro-batch of a rank. (b) Take the micro-batch with the lowest number that
/// is not finished on all ranks, and the first thing that is left of it along its chain
/// F(0)..F(S-1), I(S-1)..I(0), W: its input is there, or on its way. An I or W needs no memory; an
/// F belongs to the oldest micro-batch of its rank, as all lower ones are finished everywhere, and
/// neither memory nor `keeps_ahead` refuses it. So some action can always run, and a rank that
/// `waits` waits for an arrival that has a date and that it may run.
///
/// ResourceExhausted   if one micro-batch does not fit: which rank lacks how many bytes.
/// `costs` is written out. O(actions * (log R + stages per rank)).
absl::StatusOr<TimedSchedule> greedy_schedule(const ScheduleShape& shape,
                                              const ScheduleCosts& costs, const GreedyRule& rule);

/// The shortest of all four rules. On a tie the one with fewer choices, and `waits` before
/// `keeps_ahead`.
absl::StatusOr<TimedSchedule> greedy_schedule(const ScheduleShape& shape,
                                              const ScheduleCosts& costs);

}  // namespace skein::plans
