#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "actors/coordinator/run_observer.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan.hpp"

namespace skein::cli {

/// What a real run knows when it ends.
struct RunRecord {
  plans::JobSpec job;
  plans::Plan plan;
  std::optional<plans::ReportProfiles> profiles;  // If the workers measured before they started.
  std::vector<actors::TimingsReport> timings;     // The timings of the profiled steps.
  std::string history;                            // As `run_history_svg` drew it; may be empty.
  /// The part of the time in which other jobs had a device, while work of this one waited for it.
  double other_jobs_share = 0;
};

/// Writes report.html: the run over time, the last profiled step as it was measured, and as the
/// plan predicts it where the workers were measured. Errors of `gpu::write_durably`.
absl::Status write_run_report(const RunRecord& record, const std::string& path);

}  // namespace skein::cli
