#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace skein::bench {

/// From the first command to the last answer, in milliseconds; or what went wrong. The three after
/// a loss begin when the survivors wait in an all-reduce whose dead member never comes, and end
/// with the new group; the weights are then checked against an undisturbed run's. Where the library
/// has noticed the loss it refuses to go on from the group, and the new one is formed from a new
/// id.
struct Times {
  absl::StatusOr<double> form = absl::UnknownError("not run");
  absl::StatusOr<double> split = absl::UnknownError("not run");
  absl::StatusOr<double> shrink = absl::UnknownError("not run");
  absl::StatusOr<double> revoke_and_shrink = absl::UnknownError("not run");
  absl::StatusOr<double> shrink_with_abort = absl::UnknownError("not run");
  absl::StatusOr<double> abort_and_form = absl::UnknownError("not run");
  bool has_revoked = false, has_shrunk = false;  // Not formed anew instead.
};
/// For `patience` after a loss nobody tells the survivors, so that the library may notice itself.
Times time_changes(int64_t floats, int ranks, std::chrono::milliseconds patience);

/// Random groups, round after round, each made as decided from what the members keep. Returns how
/// often each way was taken.
absl::StatusOr<std::string> change_groups(int64_t floats, int ranks, int rounds);

/// Forms, uses and ends a group so often. Returns what was counted before and after.
absl::StatusOr<std::string> form_again(int64_t floats, int ranks, int rounds);

}  // namespace skein::bench
