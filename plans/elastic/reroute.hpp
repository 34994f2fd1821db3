#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/job/model_spec.hpp"
#include "plans/plan/plan.hpp"

namespace skein::plans {

/// `current` without the replicas on workers that are not among `workers`; a stage that loses some
/// splits its rows evenly over the others, every other stage stays as it is. No state moves.
/// Source: ReCycle, SOSP'24, section 3.
/// Differs: rows are split instead of whole micro-batches, so the action lists stay as they are.
/// NotFound   if a stage would have no replica; the message says which one.
absl::StatusOr<Plan> reroute(const Plan& current, const std::vector<WorkerId>& workers,
                             const ModelSpec& model, uint64_t generation);

}  // namespace skein::plans
