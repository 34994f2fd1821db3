#pragma once

#include "absl/status/statusor.h"
#include "plans/planner/planner.hpp"

namespace skein::plans {

/// The planner of DAPPLE, PPoPP'21, section 4: a memoised search over (layers cut off so far,
/// devices in use), where the rest of the model is one stage on all other devices; a state is
/// extended by a further stage on m' devices placed by each of three policies, and the shortest
/// length (`dapple_length`) that was ever seen wins.
/// The schedule is 1F1B (policy PA) or, where transfers are comparable to computing and memory
/// suffices, 1F1B-PB, if the request allows it (section 3.2).
/// Differs: the memo is keyed by devices in use per host. A stage's gradients that are reduced in
/// buckets count with what is left behind its backward. Plans that lack a row per replica or memory
/// are passed over.
/// InvalidArgument   beyond its budget of evaluations.
absl::StatusOr<PlannedPipeline> plan_dapple(const PlanRequest& request);

}  // namespace skein::plans
