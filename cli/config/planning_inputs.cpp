#include "cli/config/planning_inputs.hpp"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/config/cluster_file.hpp"
#include "cli/config/job_keys.hpp"
#include "cli/config/profile_file.hpp"
#include "cli/config/text_file.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/planner/measured_request.hpp"
#include "plans/profile/estimate.hpp"
#include "plans/schedule/schedule_csv.hpp"
#include "plans/schedule/validate_schedule.hpp"

namespace skein::cli {
namespace {

absl::Status with_place(const std::string& place, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(place, ": ", std::string(status.message())));
}

/// Powers of two up to the largest micro-batch, and itself: replicas may get any part of it.
std::vector<int64_t> estimated_rows(const PlanningOptions& options, const plans::JobSpec& job) {
  int64_t largest = job.training.micro_batch_size;
  for (const int64_t rows : options.microbatch_rows) largest = std::max(largest, rows);
  std::vector<int64_t> rows;
  for (int64_t n = 1; n < largest; n *= 2) rows.push_back(n);
  rows.push_back(largest);
  return rows;
}

absl::StatusOr<plans::Profile> profile_for(const PlanningOptions& options,
                                           const plans::JobSpec& job) {
  if (options.profile_path.empty()) {
    return plans::estimate_profile(job.model, job.training.seq_len, estimated_rows(options, job),
                                   job.optimizer, options.estimate_gflops * 1e9,
                                   options.estimate_gbytes * 1e9, plans::number_bytes(job.device));
  }
  SKEIN_ASSIGN_OR_RETURN(plans::Profile profile, load_profile(options.profile_path));
  const int64_t layers = plans::layer_count(job.model);
  if (static_cast<int64_t>(profile.layers.size()) != layers) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.profile_path, ": it has ", profile.layers.size(),
                     " layers, but the job's model has ", layers, " (", job.model.layers,
                     " blocks, embedding and head); use the profile of this model"));
  }
  return profile;
}

absl::Status choose_rows(const PlanningOptions& options, const plans::JobSpec& job,
                         plans::PlanRequest& request) {
  request.global_batch_rows = job.training.global_batch_size;
  request.microbatch_rows = options.microbatch_rows;
  if (request.microbatch_rows.empty()) request.microbatch_rows = {job.training.micro_batch_size};
  std::vector<int64_t>& choices = request.microbatch_rows;
  std::sort(choices.begin(), choices.end());
  choices.erase(std::unique(choices.begin(), choices.end()), choices.end());
  for (const int64_t rows : request.microbatch_rows) {
    if (rows < 1 || request.global_batch_rows % rows != 0) {
      return absl::InvalidArgumentError(absl::StrCat("--microbatch-rows ", rows,
                                                     " does not divide training.global_batch_size ",
                                                     request.global_batch_rows));
    }
  }
  return absl::OkStatus();
}

absl::Status choose_schedules(const PlanningOptions& options, const plans::JobSpec& job,
                              plans::PlanRequest& request) {
  std::vector<std::string> names = options.schedules;
  if (names.empty()) names = {job.parallelism.pipeline_parallel_schedule};
  request.schedules.clear();
  for (const std::string& name : names) {
    const auto kind = plans::parse_schedule_kind(name);
    SKEIN_RETURN_IF_ERROR(with_place("--schedules", kind.status()));
    request.schedules.push_back(*kind);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PlanningInputs> load_planning_inputs(const PlanningOptions& options) {
  PlanningInputs inputs;
  SKEIN_ASSIGN_OR_RETURN(inputs.job, load_job(options.job_path, options.overrides));
  const plans::JobSpec& job = inputs.job.spec;
  inputs.estimated = options.profile_path.empty();
  SKEIN_ASSIGN_OR_RETURN(inputs.request.cluster, load_cluster(options.cluster_path));
  SKEIN_RETURN_IF_ERROR(choose_rows(options, job, inputs.request));
  SKEIN_ASSIGN_OR_RETURN(inputs.request.profile, profile_for(options, job));
  SKEIN_RETURN_IF_ERROR(choose_schedules(options, job, inputs.request));
  inputs.request.may_recompute = options.may_recompute || job.training.recompute;
  inputs.request.simulation.commit_us = plans::kCommitUs;
  inputs.request.simulation.action_overhead_us = plans::kActionOverheadUs;
  if (!options.scenario.empty()) {
    const auto scenario = plans::parse_scenario(options.scenario);
    SKEIN_RETURN_IF_ERROR(with_place("--scenario", scenario.status()));
    inputs.request.simulation.scenario = *scenario;
  }
  SKEIN_RETURN_IF_ERROR(plans::validate(inputs.request));
  SKEIN_RETURN_IF_ERROR(find_planner(options.planner).status());
  return inputs;
}

absl::StatusOr<plans::Planner> find_planner(const std::string& name) {
  std::vector<std::string> names;
  for (const plans::Planner& planner : plans::planners()) {
    if (name == planner.name) return planner;
    names.push_back(planner.name);
  }
  return absl::InvalidArgumentError(absl::StrCat("--planner ", name, ": there is none",
                                                 suggestion(name, names), "; there are ",
                                                 absl::StrJoin(names, ", ")));
}

absl::StatusOr<plans::Schedule> load_schedule_csv(const std::string& path) {
  SKEIN_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, "schedule"));
  auto schedule = plans::parse_csv(text);
  SKEIN_RETURN_IF_ERROR(with_place(path, schedule.status()));
  return schedule;
}

absl::Status use_schedule_csv(const std::string& path, const PlanningInputs& inputs,
                              plans::Plan& plan) {
  SKEIN_ASSIGN_OR_RETURN(plans::Schedule schedule, load_schedule_csv(path));
  plan.schedule = plans::ScheduleKind::kCustom;
  plan.actions = std::move(schedule);
  return with_place(
      absl::StrCat(path, " and the plan of ", plan.stages.size(), " stages and ",
                   plan.microbatch_count, " micro-batches"),
      plans::validate(plan, static_cast<int64_t>(inputs.request.profile.layers.size()),
                      inputs.request.profile.tied_bytes > 0));
}

int64_t step_tokens(const plans::JobSpec& job) {
  return job.training.global_batch_size * job.training.seq_len;
}

}  // namespace skein::cli
