#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plans/schedule/action.hpp"

namespace skein::plans {

/// What a schedule is made for: stages on ranks.
struct ScheduleShape {
  std::vector<int32_t> rank_of_stage;  // [S], in 0..R-1; every rank has at least one stage.
  int32_t microbatch_count = 0;        // M >= 1
  int32_t stage_count() const { return static_cast<int32_t>(rank_of_stage.size()); }
  int32_t rank_count() const;
};

/// S stages on S ranks.
ScheduleShape straight_shape(int32_t stage_count, int32_t microbatch_count);
/// Megatron's virtual stages: R * v stages, stage s on rank s mod R.
ScheduleShape looped_shape(int32_t rank_count, int32_t stages_per_rank, int32_t microbatch_count);

/// Times of one micro-batch on one stage, in microseconds; a B takes an I and a W.
struct StageTimes {
  double forward_us = 1;
  double backward_input_us = 1;
  double backward_weight_us = 1;
};

/// What the actions cost and what the ranks can hold. Everything may be left out. A stash is what a
/// stage keeps of a micro-batch from the start of F to the end of B or W.
struct ScheduleCosts {
  std::vector<StageTimes> stage_times;  // [S]; empty: 1 us each.
  /// [S-1] from stage s to s + 1 and back; empty: 0. Nothing travels between stages of one rank.
  std::vector<double> transfer_us;
  std::vector<int64_t> stash_bytes;  // [S] of one micro-batch; empty: 1 each.
  std::vector<int64_t> limit_bytes;  // [R] for all stashes of a rank; empty: unlimited.
  /// DAPPLE's D: stashes that a rank may hold over all its stages; 0: unlimited. It stands for
  /// `stash_bytes` of 1 and the same limit everywhere, so it excludes `limit_bytes`.
  int32_t stash_limit = 0;
};

/// `costs` with every list written out: unlimited is the largest number, `stash_limit` has become
/// `limit_bytes`, transfers inside a rank are 0.
/// InvalidArgument   if a list has the wrong length, a number is negative, a time is not finite or
///                   longer than a year, a stash has more than 2^40 bytes, or there are both kinds
///                   of limits.
absl::StatusOr<ScheduleCosts> written_out(const ScheduleShape& shape, const ScheduleCosts& costs);

/// Bytes of one micro-batch's stashes on all stages of a rank, [R]. `costs` is written out.
std::vector<int64_t> microbatch_bytes(const ScheduleShape& shape, const ScheduleCosts& costs);

/// ResourceExhausted if some rank has no room for the stashes of a single micro-batch on all its
/// stages: it says which rank lacks how many bytes. Then no schedule exists. `costs` is written
/// out.
absl::Status check_one_fits(const ScheduleShape& shape, const ScheduleCosts& costs);

/// ResourceExhausted if the peak of a rank's stashes exceeds its limit: it says which rank lacks
/// how many bytes; `name` begins the message. `costs` is written out. O(actions).
absl::Status check_peaks(std::string_view name, const Schedule& schedule,
                         const ScheduleCosts& costs);

/// Where each rank has one stage: stashes of each that its rank has room for, [S], at least 1 and
/// at most M. ResourceExhausted as `check_one_fits`. `costs` is written out.
absl::StatusOr<std::vector<int32_t>> stash_room(const ScheduleShape& shape,
                                                const ScheduleCosts& costs);

}  // namespace skein::plans
