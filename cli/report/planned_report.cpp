#include "cli/report/planned_report.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cli/pictures/svg.hpp"
#include "cli/report/trace_reader.hpp"
#include "gpu/files/durable_file.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/schedule/schedule_csv.hpp"
#include "plans/schedule/validate_schedule.hpp"

namespace skein::cli {

std::string plan_title(const std::string& job, const plans::Plan& plan) {
  return absl::StrCat(job, ": ", std::string(plans::to_text(plan.schedule)), ", ",
                      plan.stages.size(), plan.stages.size() == 1 ? " stage, " : " stages, ",
                      plan.microbatch_count, " micro-batches of ", plan.microbatch_rows);
}

absl::Status write_pictures(const PictureFiles& files, const plans::Schedule& schedule,
                            Report report) {
  if (!files.csv.empty()) {
    int32_t microbatches = 0;
    for (const plans::ActionList& actions : schedule) {
      for (const plans::Action& each : actions) {
        microbatches = std::max(microbatches, each.microbatch + 1);
      }
    }
    // Pipeline replicas with cuts of their own have lists for each.
    const absl::Status status = plans::validate_schedule(schedule, microbatches);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(files.csv, " is not written, as nobody could read it: ", status.message()));
    }
    SKEIN_RETURN_IF_ERROR(gpu::write_durably(files.csv, plans::to_csv(schedule)));
  }
  if (!files.svg.empty()) {
    SKEIN_RETURN_IF_ERROR(gpu::write_durably(files.svg, svg(*report.planned, {})));
  }
  if (files.html.empty()) return absl::OkStatus();
  if (!files.measured.empty()) {
    SKEIN_ASSIGN_OR_RETURN(const std::vector<actors::TimingsReport> reports,
                           load_trace(files.measured + "/traces/trace.json"));
    report.measured = picture_of(reports);
  }
  report.planned->title.clear();  // The page has a title.
  return gpu::write_durably(files.html, report_html(report));
}

}  // namespace skein::cli
