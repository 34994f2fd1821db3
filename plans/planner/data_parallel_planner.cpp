#include "plans/planner/data_parallel_planner.hpp"

#include <optional>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"
#include "plans/planner/equal_devices.hpp"

namespace skein::plans {

absl::StatusOr<PlannedPipeline> plan_data_parallel(const PlanRequest& request) {
  SKEIN_RETURN_IF_ERROR(validate(request));
  const auto devices = static_cast<int64_t>(request.cluster.devices.size());
  int64_t rows = request.microbatch_rows.back();
  for (int64_t choice : request.microbatch_rows) {
    if (choice >= devices && choice < rows) rows = choice;
  }
  if (rows < devices) {
    return absl::InvalidArgumentError(
        absl::StrCat("data parallelism over ", devices, " devices needs micro-batches of at least ",
                     devices, " rows, the largest that may be chosen has ", rows,
                     "; allow more rows or use fewer devices"));
  }
  auto search = [](EqualDevices& ground,
                   const EqualDevices::Attempt& attempt) -> absl::StatusOr<std::optional<Found>> {
    CandidatePlan candidate =
        ground.candidate({0, ground.layer_count()}, {ground.devices()}, attempt);
    const double length_us =
        dapple_length(ground.dapple_stages(candidate), ground.microbatch_count(attempt)).total_us();
    if (!ground.is_possible(candidate, attempt, length_us)) return std::nullopt;
    return Found{candidate, length_us,
                 absl::StrCat("the whole model on each of ", ground.device_count(), " devices")};
  };
  return plan_with_equal_devices(request, rows, search);
}

}  // namespace skein::plans
