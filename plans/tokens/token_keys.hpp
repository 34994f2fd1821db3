#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "plans/job/job_spec.hpp"

namespace skein::plans {

/// InvalidArgument   if the job's `tokens` keys fit nothing else that it says; the message names
/// the key. OK if it is not trained by tokens and they are as they come.
absl::Status check_tokens(const JobSpec& job);

/// Sub-models of a job that is trained by tokens: the stages of its layout.
int64_t sub_model_count(const JobSpec& job);

}  // namespace skein::plans
