#include "plans/schedule/schedule_shape.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::plans {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
/// More bytes of one stash are a mistake, and sums over 8 million of them do not overflow.
constexpr int64_t kStashBytesMax = int64_t{1} << 40;
/// Longer times (a year) are a mistake, and sums stay far from the end of the numbers.
constexpr double kTimeMaxUs = 366.0 * 24 * 3600 * 1e6;
constexpr const char* kMitigation =
    "; use fewer rows per micro-batch, recomputation, fewer layers on this rank, or more memory";

template <class T>
absl::Status check_length(const char* name, const std::vector<T>& list, size_t wanted) {
  if (list.empty() || list.size() == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("schedule costs: ", name, " has ", list.size(), " entries, expected ", wanted));
}

bool is_time(double value_us) { return value_us >= 0 && value_us <= kTimeMaxUs; }

absl::Status check_numbers(const ScheduleCosts& costs) {
  for (size_t s = 0; s < costs.stage_times.size(); ++s) {
    const StageTimes& times = costs.stage_times[s];
    if (!is_time(times.forward_us) || !is_time(times.backward_input_us) ||
        !is_time(times.backward_weight_us)) {
      return absl::InvalidArgumentError(
          absl::StrCat("schedule costs: times of stage ", s, " are ", times.forward_us, ", ",
                       times.backward_input_us, ", ", times.backward_weight_us,
                       "; each must be >= 0 and less than a year"));
    }
  }
  for (double value : costs.transfer_us) {
    if (!is_time(value)) {
      return absl::InvalidArgumentError(absl::StrCat("schedule costs: a transfer takes ", value,
                                                     "; it must be >= 0 and less than a year"));
    }
  }
  for (int64_t bytes : costs.stash_bytes) {
    if (bytes < 0 || bytes > kStashBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat("schedule costs: a stash has ", bytes,
                                                     " bytes; expected 0 to ", kStashBytesMax));
    }
  }
  for (int64_t bytes : costs.limit_bytes) {
    if (bytes < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("schedule costs: a rank's limit is ", bytes, " bytes; it must be >= 0"));
    }
  }
  if (costs.stash_limit < 0 || (costs.stash_limit > 0 && !costs.limit_bytes.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule costs: stash_limit = ", costs.stash_limit,
                     "; it must be >= 0, and 0 where limit_bytes are given"));
  }
  return absl::OkStatus();
}

}  // namespace

int32_t ScheduleShape::rank_count() const {
  return rank_of_stage.empty() ? 0
                               : *std::max_element(rank_of_stage.begin(), rank_of_stage.end()) + 1;
}

ScheduleShape straight_shape(int32_t stage_count, int32_t microbatch_count) {
  return looped_shape(stage_count, 1, microbatch_count);
}

ScheduleShape looped_shape(int32_t rank_count, int32_t stages_per_rank, int32_t microbatch_count) {
  ScheduleShape shape;
  shape.microbatch_count = microbatch_count;
  for (int32_t s = 0; s < rank_count * stages_per_rank; ++s) {
    shape.rank_of_stage.push_back(s % rank_count);
  }
  return shape;
}

absl::StatusOr<ScheduleCosts> written_out(const ScheduleShape& shape, const ScheduleCosts& costs) {
  const size_t stages = shape.rank_of_stage.size();
  const auto ranks = static_cast<size_t>(shape.rank_count());
  SKEIN_CHECK(stages > 0 && shape.microbatch_count > 0)
      << stages << " stages, M = " << shape.microbatch_count;
  SKEIN_RETURN_IF_ERROR(check_length("stage_times", costs.stage_times, stages));
  SKEIN_RETURN_IF_ERROR(check_length("transfer_us", costs.transfer_us, stages - 1));
  SKEIN_RETURN_IF_ERROR(check_length("stash_bytes", costs.stash_bytes, stages));
  SKEIN_RETURN_IF_ERROR(check_length("limit_bytes", costs.limit_bytes, ranks));
  SKEIN_RETURN_IF_ERROR(check_numbers(costs));
  ScheduleCosts full = costs;
  full.stage_times.resize(stages);
  full.transfer_us.resize(stages - 1, 0.0);
  full.stash_bytes.resize(stages, 1);
  full.limit_bytes.resize(ranks, kUnlimited);
  if (costs.stash_limit > 0) {
    full.stash_bytes.assign(stages, 1);
    full.limit_bytes.assign(ranks, costs.stash_limit);
    full.stash_limit = 0;
  }
  for (size_t s = 0; s + 1 < stages; ++s) {
    if (shape.rank_of_stage[s] == shape.rank_of_stage[s + 1]) full.transfer_us[s] = 0;
  }
  return full;
}

std::vector<int64_t> microbatch_bytes(const ScheduleShape& shape, const ScheduleCosts& costs) {
  std::vector<int64_t> bytes(static_cast<size_t>(shape.rank_count()), 0);
  for (size_t s = 0; s < shape.rank_of_stage.size(); ++s) {
    bytes[static_cast<size_t>(shape.rank_of_stage[s])] += costs.stash_bytes[s];
  }
  return bytes;
}

absl::Status check_one_fits(const ScheduleShape& shape, const ScheduleCosts& costs) {
  const std::vector<int64_t> bytes = microbatch_bytes(shape, costs);
  for (size_t rank = 0; rank < bytes.size(); ++rank) {
    if (bytes[rank] <= costs.limit_bytes[rank]) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat("rank ", rank, " lacks ", bytes[rank] - costs.limit_bytes[rank],
                     " bytes: one micro-batch stashes ", bytes[rank],
                     " on its stages, the limit is ", costs.limit_bytes[rank], kMitigation));
  }
  return absl::OkStatus();
}

absl::Status check_peaks(std::string_view name, const Schedule& schedule,
                         const ScheduleCosts& costs) {
  for (size_t rank = 0; rank < schedule.size(); ++rank) {
    const int64_t peak = stash_peak_bytes(schedule[rank], costs.stash_bytes);
    if (peak <= costs.limit_bytes[rank]) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat(std::string(name), ": rank ", rank, " lacks ", peak - costs.limit_bytes[rank],
                     " bytes: its stashes need ", peak, ", the limit is ", costs.limit_bytes[rank],
                     kMitigation, ", or the schedule \"Greedy\""));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> stash_room(const ScheduleShape& shape,
                                                const ScheduleCosts& costs) {
  SKEIN_RETURN_IF_ERROR(check_one_fits(shape, costs));
  std::vector<int32_t> room;
  for (size_t s = 0; s < shape.rank_of_stage.size(); ++s) {
    const int64_t limit = costs.limit_bytes[static_cast<size_t>(shape.rank_of_stage[s])];
    const int64_t stashes = limit / std::max<int64_t>(1, costs.stash_bytes[s]);
    room.push_back(static_cast<int32_t>(std::clamp<int64_t>(stashes, 1, shape.microbatch_count)));
  }
  return room;
}

}  // namespace skein::plans
