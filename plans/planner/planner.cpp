#include "plans/planner/planner.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"
#include "plans/planner/dapple_planner.hpp"
#include "plans/planner/dapple_released_planner.hpp"
#include "plans/planner/data_parallel_planner.hpp"
#include "plans/planner/pipedream_planner.hpp"
#include "plans/planner/skein_planner.hpp"
#include "plans/planner/straight_planner.hpp"
#include "plans/planner/two_stage_planner.hpp"

namespace skein::plans {
namespace {

/// A schedule's lists hold 2 M S actions; more micro-batches are a mistake.
constexpr int64_t kMicrobatchesMax = 1 << 20;

absl::Status check_rows(const PlanRequest& request) {
  if (request.global_batch_rows < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("global_batch_rows = ", request.global_batch_rows, " must be at least 1"));
  }
  if (request.microbatch_rows.empty()) {
    return absl::InvalidArgumentError("microbatch_rows is empty; give at least one number of rows");
  }
  int64_t before = 0;
  for (int64_t rows : request.microbatch_rows) {
    if (rows <= before || request.global_batch_rows % rows != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("microbatch_rows has ", rows, ": each must be a divisor of ",
                       "global_batch_rows = ", request.global_batch_rows, ", ascending"));
    }
    before = rows;
  }
  const int64_t count = request.global_batch_rows / request.microbatch_rows.front();
  if (count > kMicrobatchesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("microbatch_rows = ", request.microbatch_rows.front(), " gives ", count,
                     " micro-batches; at most ", kMicrobatchesMax, " can be planned"));
  }
  return absl::OkStatus();
}

absl::Status check_schedules(const PlanRequest& request) {
  if (request.schedules.empty()) {
    return absl::InvalidArgumentError("schedules is empty; give at least one, for example 1F1B");
  }
  for (const ScheduleKind kind : request.schedules) {
    if (kind != ScheduleKind::kCustom) continue;
    return absl::InvalidArgumentError(
        "schedules has Custom, which no planner can make; choose another one");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status validate(const PlanRequest& request) {
  SKEIN_RETURN_IF_ERROR(validate(request.profile));
  SKEIN_RETURN_IF_ERROR(validate(request.cluster));
  SKEIN_RETURN_IF_ERROR(check_rows(request));
  SKEIN_RETURN_IF_ERROR(check_schedules(request));
  if (request.simulation.steps < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("simulation.steps = ", request.simulation.steps, " must be at least 1"));
  }
  return absl::OkStatus();
}

const std::vector<Planner>& planners() {
  static const std::vector<Planner> all = {
      {"skein", plan_skein, /*chooses_rows=*/true},
      {"dapple", plan_dapple},
      {"dapple_released", plan_dapple_released},
      {"pipedream", plan_pipedream},
      {"data_parallel", plan_data_parallel},
      {"straight", plan_straight},
      {"two_stage", plan_two_stage},
  };
  return all;
}

}  // namespace skein::plans
