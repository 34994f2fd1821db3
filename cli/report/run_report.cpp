#include "cli/report/run_report.hpp"

#include "absl/strings/str_format.h"
#include "cli/pictures/report_html.hpp"
#include "cli/report/number_text.hpp"
#include "cli/report/planned_report.hpp"
#include "gpu/files/durable_file.hpp"
#include "plans/plan/layout_plan.hpp"

namespace skein::cli {

absl::Status write_run_report(const RunRecord& record, const std::string& path) {
  Report report;
  report.title = plan_title(record.job.name, record.plan);
  report.history = record.history;
  report.measured = picture_of(record.timings);
  report.facts = {
      {"model", plans::layers_text(record.job.model)},
      {"stages", plans::stages_text(record.plan) + " (layers x replicas)"},
      {"measured step", time_text(report.measured->end_us, true)},
      {"measured bubble", absl::StrFormat("%.1f%%", bubble_of(*report.measured) * 100)}};
  if (record.other_jobs_share > 0) {
    report.facts.emplace_back(
        "other jobs", absl::StrFormat("had a device for %.1f%% of the time, while work of this "
                                      "one waited",
                                      record.other_jobs_share * 100));
  }
  if (record.profiles) {
    const plans::ClusterSpec& cluster = record.profiles->cluster;
    const auto simulation = plans::simulate(record.plan, record.profiles->profile, cluster, {});
    if (simulation.ok()) report.planned = picture_of(record.plan, *simulation, cluster, 1);
  }
  return gpu::write_durably(path, report_html(report));
}

}  // namespace skein::cli
