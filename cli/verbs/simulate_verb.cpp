#include "cli/verbs/simulate_verb.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/config/cluster_file.hpp"
#include "cli/config/profile_file.hpp"
#include "cli/config/stray_keys.hpp"
#include "cli/pictures/terminal_grid.hpp"
#include "cli/report/number_text.hpp"
#include "cli/report/plan_table.hpp"
#include "cli/report/planned_report.hpp"
#include "cli/report/simulated_run.hpp"
#include "cli/run/exit_codes.hpp"
#include "gpu/files/durable_file.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/plan/plan_ranks.hpp"

namespace skein::cli {
namespace {

/// More would only take time and memory: without a scenario every step is like the first.
constexpr int32_t kStepsMax = 100'000;

absl::Status run_with_files(const SimulateOptions& options) {
  if (options.steps < 1 || options.steps > kStepsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--steps ", options.steps, ": expected 1 to ", kStepsMax));
  }
  for (const auto& [key, value] : options.planning.overrides) {
    if (key == "training.steps") {
      return absl::InvalidArgumentError(
          absl::StrCat("skein simulate takes --steps ", value, " instead of --training.steps"));
    }
  }
  SKEIN_ASSIGN_OR_RETURN(PlanningInputs inputs, load_planning_inputs(options.planning));
  SKEIN_ASSIGN_OR_RETURN(const plans::Plan plan,
                         plan_for(options.planning, options.plan_path, inputs));
  if (!options.shared.beside.empty()) {
    const PictureFiles& files = options.files;
    if (!files.svg.empty() || !files.html.empty() || !files.csv.empty() ||
        !files.measured.empty()) {
      return absl::InvalidArgumentError(
          "--beside prints a table only; leave out --svg, --html, --csv "
          "and --measured");
    }
    return simulate_shared(options.planning, inputs, plan, options.shared, options.steps,
                           options.format == LogFormat::kJson);
  }
  const plans::PlanRequest& request = inputs.request;
  plans::SimulationOptions simulating = request.simulation;
  simulating.steps = options.steps;
  SKEIN_ASSIGN_OR_RETURN(const plans::Simulation simulation,
                         plans::simulate(plan, request.profile, request.cluster, simulating));
  // What the run folder says must be what was simulated.
  plans::JobSpec& job = inputs.job.spec;
  job.training.steps = options.steps;
  job.training.micro_batch_size = plan.microbatch_rows;
  job.training.global_batch_size = plan.microbatch_rows * plan.microbatch_count;
  SKEIN_ASSIGN_OR_RETURN(const RunFolder folder,
                         inputs.has_job ? make_run_folder(inputs.job)
                                        : make_bare_run_folder(job.dump_folder, job.name));
  SKEIN_RETURN_IF_ERROR(save_profile(folder.file("profile.json"), request.profile));
  SKEIN_RETURN_IF_ERROR(gpu::write_durably(folder.file("cluster.toml"), to_toml(request.cluster)));
  RunReporter::Options reporting;
  reporting.job = job;
  reporting.folder = folder;
  reporting.format = options.format;
  reporting.quiet = options.quiet;
  reporting.colours = isatty(STDOUT_FILENO) == 1;
  reporting.simulated = true;
  reporting.counts_samples = !inputs.has_job;
  SKEIN_ASSIGN_OR_RETURN(const std::unique_ptr<RunReporter> reporter,
                         RunReporter::create(std::move(reporting)));
  replay(job, plan, request.cluster, simulation, *reporter);
  actors::RunResult result;
  result.steps_done = static_cast<uint64_t>(options.steps);
  SKEIN_RETURN_IF_ERROR(reporter->summarise(result));

  Report report;
  report.title = plan_title(job.name, plan) + ", simulated";
  report.facts = prediction_facts(inputs, simulation);
  report.planned = picture_of(plan, simulation, request.cluster, 1);
  report.planned->title = report.title;
  PictureFiles files = options.files;
  SKEIN_RETURN_IF_ERROR(write_pictures(files, plan.actions, report));
  files = {};
  files.html = folder.file("report.html");
  files.measured = options.files.measured;
  return write_pictures(files, plan.actions, report);
}

std::string stashes_text(const plans::Plan& plan) {
  std::vector<int64_t> peaks;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    peaks.push_back(plans::stash_peak_of(plan, static_cast<int32_t>(s)));
  }
  return absl::StrJoin(peaks, " ");
}

absl::Status run_quick(const SimulateOptions& options) {
  SKEIN_RETURN_IF_ERROR(
      refuse_job_keys("skein simulate without files", "", {}, options.planning.overrides));
  QuickOptions asked = options.quick;
  if (asked.stages == 0 && asked.microbatches == 0 && options.planning.schedule_csv.empty()) {
    return absl::InvalidArgumentError(
        "give a job and a cluster file, or a cluster file and --profile, or --stages and "
        "--microbatches, or --schedule-csv");
  }
  asked.schedule_csv = options.planning.schedule_csv;
  SKEIN_ASSIGN_OR_RETURN(const QuickSimulation quick, quick_simulation(asked));
  Report report;
  report.title = absl::StrFormat(
      "%s, %d ranks, %d stages, %d micro-batches", std::string(plans::to_text(quick.plan.schedule)),
      quick.plan.actions.size(), quick.plan.stages.size(), quick.plan.microbatch_count);
  report.planned = picture_of(quick.plan, quick.simulation, quick.cluster, 1);
  report.planned->title = report.title;
  report.planned->has_units = false;
  for (PictureRow& row : report.planned->rows) row.memory_capacity_bytes = 0;
  const double makespan = quick.simulation.step_us;
  report.facts = {{"makespan", time_text(makespan, false)},
                  {"bubble", absl::StrFormat("%.1f%%", quick.simulation.bubble * 100)},
                  {"stash peaks", stashes_text(quick.plan)}};
  if (!options.quiet) {
    std::fputs(terminal_grid(*report.planned, grid_options_of(STDOUT_FILENO)).c_str(), stdout);
  }
  for (const auto& [name, value] : report.facts) {
    std::printf("%-12s %s\n", name.c_str(), value.c_str());
  }
  return write_pictures(options.files, quick.plan.actions, report);
}

/// Every flag belongs to the form that was chosen.
absl::Status check_flags(const SimulateOptions& options, bool with_files) {
  const std::vector<std::string>& stray =
      with_files ? options.flags_of_numbers : options.flags_of_files;
  if (stray.empty()) return absl::OkStatus();
  const auto has = [&](const char* flag) {
    return std::find(stray.begin(), stray.end(), flag) != stray.end();
  };
  const char* meant = "";
  if (has("--schedule")) meant = "; did you mean --schedules?";
  if (has("--schedules")) meant = "; did you mean --schedule?";
  return absl::InvalidArgumentError(absl::StrCat(
      absl::StrJoin(stray, ", "), ": skein simulate takes ", stray.size() == 1 ? "that" : "those",
      with_files ? " only without files, with --stages and --microbatches"
                 : " only with a job and a cluster file, or a cluster file and "
                   "--profile",
      meant));
}

}  // namespace

int simulate(const SimulateOptions& options) {
  const bool with_files = !options.planning.job_path.empty() ||
                          !options.planning.profile_path.empty() ||
                          !options.churn.trace_path.empty();
  if (absl::Status status = check_flags(options, with_files); !status.ok()) {
    return report_error(status);
  }
  if (!options.churn.trace_path.empty()) {
    ChurnArguments churn = options.churn;
    churn.as_json = options.format == LogFormat::kJson;
    const absl::Status status = simulate_churn(options.planning, churn);
    return status.ok() ? kExitDone : report_error(status);
  }
  const absl::Status status = with_files ? run_with_files(options) : run_quick(options);
  if (status.ok()) return kExitDone;
  return absl::IsResourceExhausted(status) ? report_error(status, kExitUsage)
                                           : report_error(status);
}

}  // namespace skein::cli
