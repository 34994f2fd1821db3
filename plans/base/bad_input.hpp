#pragma once

#include "absl/status/status.h"

namespace skein::plans {

/// Data, a checkpoint or the job are at fault: every worker would fail alike.
inline bool is_bad_input(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsInvalidArgument(status);
}

}  // namespace skein::plans
