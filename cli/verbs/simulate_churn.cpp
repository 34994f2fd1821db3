#include "cli/verbs/simulate_churn.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/config/text_file.hpp"
#include "cli/report/churn_table.hpp"
#include "gpu/files/durable_file.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/plan/layout_plan.hpp"

namespace skein::cli {
namespace {

absl::StatusOr<plans::Churn> read_members(const ChurnArguments& arguments, int64_t devices) {
  SKEIN_ASSIGN_OR_RETURN(const std::string text,
                         read_text_file(arguments.trace_path, "churn trace"));
  absl::StatusOr<plans::Churn> churn;
  const auto trace = plans::parse_churn(text);
  churn = trace.ok() ? plans::members_of(*trace, devices, arguments.options)
                     : absl::StatusOr<plans::Churn>(trace.status());
  if (churn.ok()) return churn;
  return absl::InvalidArgumentError(
      absl::StrCat(arguments.trace_path, ": ", std::string(churn.status().message())));
}

/// The keys that a change of members would have to obey, and that are not simulated.
absl::Status check_options(const PlanningOptions& planning, const PlanningInputs& inputs) {
  if (!inputs.has_job) {
    return absl::InvalidArgumentError(
        "--churn makes plans as a run does, for which it needs a job file and a cluster file");
  }
  if (!planning.scenario.empty() || !planning.schedule_csv.empty() ||
      !inputs.job.spec.parallelism.plan.empty()) {
    return absl::InvalidArgumentError(
        "--churn makes a plan for each set of members; leave out --scenario, --schedule-csv and "
        "parallelism.plan");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status simulate_churn(const PlanningOptions& planning, const ChurnArguments& arguments) {
  SKEIN_ASSIGN_OR_RETURN(PlanningInputs inputs, load_planning_inputs(planning));
  SKEIN_RETURN_IF_ERROR(check_options(planning, inputs));
  plans::ChurnRequest request;
  request.job = inputs.job.spec;
  request.profile = inputs.request.profile;
  request.cluster = inputs.request.cluster;
  request.costs = arguments.costs;
  request.template_stages = arguments.template_stages;
  const auto devices = static_cast<int64_t>(request.cluster.devices.size());
  SKEIN_ASSIGN_OR_RETURN(request.churn, read_members(arguments, devices));
  SKEIN_ASSIGN_OR_RETURN(const plans::ChurnSimulation simulation, plans::simulate_churn(request));
  const ChurnSource source = {std::filesystem::path(arguments.trace_path).filename().string(),
                              devices, arguments.options};
  if (arguments.as_json) {
    std::printf("%s\n", json_text(churn_json(source, request.churn, simulation)).c_str());
  } else {
    std::fputs(churn_table(source, request.churn, simulation).c_str(), stdout);
  }
  if (arguments.chaos_path.empty()) return absl::OkStatus();
  const std::string script = plans::to_text(plans::chaos_of(request.churn));
  SKEIN_RETURN_IF_ERROR(gpu::write_durably(arguments.chaos_path, script + "\n"));
  if (arguments.as_json) return absl::OkStatus();
  const auto workers = static_cast<int64_t>(request.churn.begin.size());
  const absl::StatusOr<int64_t> needed = plans::layout_worker_count(request.job, workers);
  if (needed.ok() && *needed > workers) {
    std::printf(
        "\n%s is for a real run that starts with %d workers, but the job's layout needs %d: "
        "take another part of the recording (--churn-from), or leave the layout open "
        "(--parallelism.pipeline_parallel_degree auto)\n",
        arguments.chaos_path.c_str(), static_cast<int>(workers), static_cast<int>(*needed));
    return absl::OkStatus();
  }
  std::printf("\nthe same for a real run: skein train %s --workers %d --chaos \"$(cat %s)\"\n",
              planning.job_path.c_str(), static_cast<int>(workers), arguments.chaos_path.c_str());
  return absl::OkStatus();
}

}  // namespace skein::cli
