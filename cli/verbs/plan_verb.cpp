#include "cli/verbs/plan_verb.hpp"

#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "cli/config/json_text.hpp"
#include "cli/pictures/terminal_grid.hpp"
#include "cli/report/number_text.hpp"
#include "cli/report/plan_json.hpp"
#include "cli/report/plan_table.hpp"
#include "cli/report/planned_report.hpp"
#include "cli/run/exit_codes.hpp"
#include "gpu/files/durable_file.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::cli {
namespace {

const plans::PlanVerdict* verdict_of(const std::vector<plans::PlanVerdict>& verdicts,
                                     const std::string& planner) {
  for (const plans::PlanVerdict& verdict : verdicts) {
    if (verdict.planner == planner) return &verdict;
  }
  return nullptr;
}

/// The chosen planner's alone, where the job does not want the others' plans.
absl::StatusOr<std::vector<plans::PlanVerdict>> verdicts_for(const PlanningOptions& options,
                                                             const plans::PlanRequest& request) {
  if (request.asks_others) return plans::compare_planners(request);
  SKEIN_ASSIGN_OR_RETURN(const plans::Planner planner, find_planner(options.planner));
  return std::vector<plans::PlanVerdict>{plans::planner_verdict(planner, request)};
}

/// Puts a schedule of the user's into the chosen plan and simulates it.
absl::Status use_schedule(const PlanOptions& options, const PlanningInputs& inputs,
                          plans::PlanVerdict& chosen) {
  const std::string& path = options.planning.schedule_csv;
  if (path.empty()) return absl::OkStatus();
  SKEIN_RETURN_IF_ERROR(use_schedule_csv(path, inputs, chosen.pipeline.plan));
  absl::StrAppend(&chosen.pipeline.reason, "; its schedule is that of ", path);
  SKEIN_ASSIGN_OR_RETURN(chosen.simulation,
                         plans::simulate(chosen.pipeline.plan, inputs.request.profile,
                                         inputs.request.cluster, inputs.request.simulation));
  return plans::check_memory(chosen.pipeline.plan, inputs.request.profile, inputs.request.cluster);
}

Json workers_json(const plans::Simulation& simulation, const plans::ClusterSpec& cluster) {
  Json workers = Json::array();
  for (const plans::SimulatedWorker& worker : simulation.workers) {
    const plans::ClusterDevice& device = cluster.devices[worker.id.value - 1];
    workers.push_back({{"worker", worker.id.value},
                       {"device", device.name},
                       {"busy_us", worker.busy_us},
                       {"peak_bytes", worker.peak_bytes},
                       {"capacity_bytes", device.memory_bytes}});
  }
  return workers;
}

Json json_of(const PlanningInputs& inputs, const plans::PlanVerdict& chosen,
             const std::vector<ReportPlanner>& planners) {
  const plans::Simulation& simulation = chosen.simulation;
  Json others = Json::array();
  for (const ReportPlanner& planner : planners) {
    Json json = {{"planner", planner.name}};
    if (planner.error.empty()) {
      json["step_us"] = planner.step_us;
      json["bubble"] = planner.bubble;
      json["stages"] = planner.stages;
      json["against_chosen"] = planner.advantage;
    } else {
      json["error"] = planner.error;
    }
    others.push_back(json);
  }
  const Throughput rate = throughput(inputs, simulation.step_us);
  Json json = {{"planner", chosen.planner},
               {"reason", chosen.pipeline.reason},
               {"profile", inputs.estimated ? "estimated" : inputs.request.profile.source},
               {"step_us", simulation.step_us},
               {"objective_us", chosen.pipeline.objective_us},
               {"samples_per_second", rate.samples},
               {"bubble", simulation.bubble},
               {"workers", workers_json(simulation, inputs.request.cluster)},
               {"planners", others},
               {"plan", plan_json(chosen.pipeline.plan)},
               {"plan_text", plans::to_text(chosen.pipeline.plan)}};
  if (inputs.has_job) json["tokens_per_second"] = rate.tokens;
  return json;
}

void print(const PlanOptions& options, const PlanningInputs& inputs,
           const plans::PlanVerdict& chosen, const Report& report) {
  const plans::Plan& plan = chosen.pipeline.plan;
  std::string text =
      absl::StrCat(plan_title(inputs.job.spec.name, plan), plan.recompute ? ", recomputing" : "",
                   ", by ", chosen.planner, "\n\n");
  absl::StrAppend(&text, plan_table(plan, chosen.simulation, inputs.request), "\n");
  absl::StrAppend(&text, "why         ", chosen.pipeline.reason, "\n");
  for (const auto& [name, value] : report.facts) {
    absl::StrAppend(&text, name, std::string(12 - std::min<size_t>(11, name.size()), ' '), value,
                    "\n");
  }
  if (report.planners.size() > 1) {
    absl::StrAppend(&text, "\n", planner_table(report.planners, chosen.planner));
  }
  if (options.shows) {
    absl::StrAppend(&text, "\n", terminal_grid(*report.planned, grid_options_of(STDOUT_FILENO)));
  }
  std::fputs(text.c_str(), stdout);
}

absl::Status run(const PlanOptions& options) {
  SKEIN_ASSIGN_OR_RETURN(const PlanningInputs inputs, load_planning_inputs(options.planning));
  SKEIN_ASSIGN_OR_RETURN(const std::vector<plans::PlanVerdict> verdicts,
                         verdicts_for(options.planning, inputs.request));
  const plans::PlanVerdict* found = verdict_of(verdicts, options.planning.planner);
  SKEIN_RETURN_IF_ERROR(found->status);
  plans::PlanVerdict chosen = *found;
  SKEIN_RETURN_IF_ERROR(use_schedule(options, inputs, chosen));
  const plans::Plan& plan = chosen.pipeline.plan;
  Report report;
  report.title = plan_title(inputs.job.spec.name, plan);
  report.facts = prediction_facts(inputs, chosen.simulation);
  report.planners = report_planners(verdicts, chosen);
  report.planned = picture_of(plan, chosen.simulation, inputs.request.cluster, 1);
  if (options.json) {
    std::printf("%s\n", json_text(json_of(inputs, chosen, report.planners), 2).c_str());
  } else {
    print(options, inputs, chosen, report);
  }
  report.planned->title = report.title;
  report.facts.push_back({"why", chosen.pipeline.reason});
  if (!options.out.empty()) {
    SKEIN_RETURN_IF_ERROR(gpu::write_durably(options.out, plans::to_text(plan)));
  }
  return write_pictures(options.files, plan.actions, report);
}

}  // namespace

int plan(const PlanOptions& options) {
  const absl::Status status = run(options);
  if (status.ok()) return kExitDone;
  // A model that does not fit the machines is the user's to change, like a key out of range.
  return absl::IsResourceExhausted(status) ? report_error(status, kExitUsage)
                                           : report_error(status);
}

}  // namespace skein::cli
