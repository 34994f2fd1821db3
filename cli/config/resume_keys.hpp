#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/job/job_spec.hpp"

namespace skein::cli {

/// A digest of the configuration, but for the names of the run and its folder and what belongs to
/// one worker (its device, reports): two workers whose digests are equal train the same. Never 0.
uint64_t config_digest(const plans::JobSpec& job);

/// A key that has another value than the run had.
struct ChangedKey {
  std::string name;    // "optimizer.lr"
  std::string before;  // As TOML.
  std::string now;
};

/// What is different when a run that was configured as `before` goes on as `now`.
/// InvalidArgument   if some of it may not change within a run; lists those keys with both values.
absl::StatusOr<std::vector<ChangedKey>> resumed_changes(const plans::JobSpec& before,
                                                        const plans::JobSpec& now);

/// Whether a resumed run may have another value of the key, as "optimizer.lr".
bool may_change_on_resume(const std::string& key);

}  // namespace skein::cli
