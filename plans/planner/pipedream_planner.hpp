#pragma once

#include "absl/status/statusor.h"
#include "plans/planner/planner.hpp"

namespace skein::plans {

/// The planner of PipeDream, SOSP'19, section 3.1, in the form of its released code: the slowest
/// stage as fast as possible, first over the devices of a host, then over hosts:
///   A[j][m] = min over k, m' of max(A[k][m - m'], (T(k..j) + 4 (m' - 1) W / (B m')) / m',
///                                   2 a_k / B)
/// where T is F + B of a micro-batch on one device, and on the second level A of the first level
/// for the layers on one host. It ignores filling, draining and the tail of the all-reduce.
/// Differs: the result runs synchronously as 1F1B, as in DAPPLE's comparison, with replicas that
/// split a micro-batch instead of taking turns. Hosts of unlike numbers of devices, or one host,
/// are planned on one level. Plans that lack a row per replica are passed over by the search;
/// memory is checked at the end, as there. InvalidArgument   beyond its budget of steps.
absl::StatusOr<PlannedPipeline> plan_pipedream(const PlanRequest& request);

}  // namespace skein::plans
