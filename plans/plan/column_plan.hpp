#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan.hpp"
#include "plans/sync/column_layout.hpp"

namespace skein::plans {

/// A plan of columns of the job's pipeline, as many as there are workers for: replica c of every
/// stage belongs to column c, and has the rows of it. A column's samples of one iteration are the
/// same however many columns there are; so a micro-batch of the plan has as many rows as it has
/// columns times that. With fewer workers than the pipeline has stages: one column of fewer stages.
/// InvalidArgument   as `make_layout_plan`; or if a tied embedding would lie on two stages, which
///                   columns average apart from each other.
absl::StatusOr<Plan> make_column_plan(const JobSpec& job, const std::vector<WorkerId>& workers,
                                      uint64_t generation);

/// Columns and stages of such a plan.
ColumnLayout column_layout(const Plan& plan);

/// Samples of one iteration of a column.
uint64_t column_samples(const JobSpec& job);

}  // namespace skein::plans
