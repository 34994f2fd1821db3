#include "cli/config/planning_inputs.hpp"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/config/cluster_file.hpp"
#include "cli/config/job_keys.hpp"
#include "cli/config/plan_file.hpp"
#include "cli/config/profile_file.hpp"
#include "cli/config/text_file.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/planner/measured_request.hpp"
#include "plans/profile/estimate.hpp"
#include "plans/schedule/schedule_csv.hpp"
#include "plans/schedule/validate_schedule.hpp"
#include "plans/sync/policy_kind.hpp"

namespace skein::cli {
namespace {

/// Micro-batches of a step that keep a pipeline of so many devices busy for four fifths of the
/// time.
constexpr int64_t kMicrobatchesPerDevice = 4;

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
    plans::Profile profile =
        plans::estimate_profile(job.model, job.training.seq_len, estimated_rows(options, job),
                                job.optimizer, options.estimate_gflops * 1e9,
                                options.estimate_gbytes * 1e9, plans::number_bytes(job.device));
    if (job.device.type == "sleep") {
      plans::set_sleep_times(profile, job.model, job.device, job.training.micro_batch_size);
    }
    return profile;
  }
  SKEIN_ASSIGN_OR_RETURN(plans::Profile profile, load_profile(options.profile_path));
  const int64_t layers = plans::layer_count(job.model);
  if (static_cast<int64_t>(profile.layers.size()) != layers) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.profile_path, ": it has ", profile.layers.size(),
                     " layers, but the job's model has ", plans::layers_text(job.model),
                     "; use the profile of this model, or leave out the job file"));
  }
  return profile;
}

/// What stands for the job where a profile says all of the model.
absl::StatusOr<LoadedJob> job_without_file(const PlanningOptions& options,
                                           const plans::Profile& profile, size_t device_count) {
  SKEIN_ASSIGN_OR_RETURN(LoadedJob job, load_job_text("", "no job file", options.overrides));
  tell_ignored(job);
  if (!job.origins.contains("job.name")) {
    job.spec.name = std::filesystem::path(options.profile_path).stem().string();
  }
  plans::TrainingSpec& training = job.spec.training;
  if (!job.origins.contains("training.micro_batch_size")) {
    training.micro_batch_size =
        options.microbatch_rows.empty() ? profile.rows.back() : options.microbatch_rows.front();
  }
  if (!job.origins.contains("training.global_batch_size")) {
    training.global_batch_size =
        training.micro_batch_size * kMicrobatchesPerDevice * static_cast<int64_t>(device_count);
  }
  return job;
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
    if (request.global_batch_rows % rows != 0) {
      const char* place = options.batch > 0 ? "--batch" : "which --batch changes";
      return absl::InvalidArgumentError(absl::StrCat(
          "micro-batches of ", rows, " rows (--microbatch-rows ", rows,
          ") do not divide the batch of ", request.global_batch_rows, " (", place, ")"));
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
  for (const int64_t rows : options.microbatch_rows) {
    if (rows >= 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--microbatch-rows ", rows, ": expected at least 1"));
  }
  PlanningInputs inputs;
  inputs.has_job = !options.cluster_path.empty();
  inputs.estimated = options.profile_path.empty();
  if (!inputs.has_job && (inputs.estimated || options.job_path.empty())) {
    return absl::InvalidArgumentError(
        "give a job file and a cluster file, or a cluster file and --profile; examples/ has some");
  }
  const std::string& cluster_path = inputs.has_job ? options.cluster_path : options.job_path;
  plans::JobSpec& job = inputs.job.spec;
  if (inputs.has_job) {
    SKEIN_ASSIGN_OR_RETURN(inputs.job, load_job(options.job_path, options.overrides));
    tell_ignored(inputs.job);
    if (plans::begins_in_pipelines(job) || plans::trains_by_tokens(job)) {
      return absl::InvalidArgumentError(absl::StrCat(
          options.job_path, ": sync.policy = \"", job.sync.policy,
          "\": only plans of synchronous steps are planned and simulated here, and those are of "
          "sync.policy = \"allreduce\"; add --sync.policy allreduce for them"));
    }
    SKEIN_ASSIGN_OR_RETURN(inputs.request.cluster, load_cluster(cluster_path));
    SKEIN_ASSIGN_OR_RETURN(inputs.request.profile, profile_for(options, job));
  } else {
    SKEIN_ASSIGN_OR_RETURN(inputs.request.profile, load_profile(options.profile_path));
    absl::StatusOr<plans::ClusterSpec> cluster = load_cluster(cluster_path);
    if (!cluster.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(std::string(cluster.status().message()),
                       "; with --profile and one file, that file is the cluster"));
    }
    inputs.request.cluster = *std::move(cluster);
    SKEIN_ASSIGN_OR_RETURN(inputs.job, job_without_file(options, inputs.request.profile,
                                                        inputs.request.cluster.devices.size()));
  }
  if (options.batch > 0) job.training.global_batch_size = options.batch;
  SKEIN_RETURN_IF_ERROR(choose_rows(options, job, inputs.request));
  SKEIN_RETURN_IF_ERROR(choose_schedules(options, job, inputs.request));
  inputs.request.may_recompute = options.may_recompute || job.training.recompute;
  inputs.request.asks_others = job.parallelism.plans_of_others;
  inputs.request.simulation.commit_us = plans::kCommitUs;
  inputs.request.simulation.action_overhead_us = plans::kActionOverheadUs;
  if (!options.scenario.empty()) {
    const auto scenario = plans::parse_scenario(options.scenario);
    if (!scenario.ok()) {  // Its message begins with "scenario: ".
      return absl::InvalidArgumentError(
          absl::StrCat("--", std::string(scenario.status().message())));
    }
    const auto devices = static_cast<int32_t>(inputs.request.cluster.devices.size());
    if (absl::Status fits = plans::validate(*scenario, devices); !fits.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--", std::string(fits.message())));
    }
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

absl::StatusOr<plans::Plan> plan_for(const PlanningOptions& options, const std::string& plan_path,
                                     const PlanningInputs& inputs) {
  const plans::Profile& profile = inputs.request.profile;
  plans::Plan plan;
  if (!plan_path.empty()) {
    SKEIN_ASSIGN_OR_RETURN(plan, read_plan(plan_path));
    SKEIN_RETURN_IF_ERROR(
        with_place(plan_path, plans::validate(plan, static_cast<int64_t>(profile.layers.size()),
                                              profile.tied_bytes > 0)));
  } else {
    SKEIN_ASSIGN_OR_RETURN(const plans::Planner planner, find_planner(options.planner));
    SKEIN_ASSIGN_OR_RETURN(plans::PlannedPipeline planned, planner.make_plan(inputs.request));
    plan = std::move(planned.plan);
  }
  if (!options.schedule_csv.empty()) {
    SKEIN_RETURN_IF_ERROR(use_schedule_csv(options.schedule_csv, inputs, plan));
  }
  SKEIN_RETURN_IF_ERROR(plans::check_memory(plan, profile, inputs.request.cluster));
  return plan;
}

Throughput throughput(const PlanningInputs& inputs, double step_us) {
  if (!(step_us > 0)) return {};
  const double samples = static_cast<double>(inputs.request.global_batch_rows) / step_us * 1e6;
  const double length = static_cast<double>(inputs.job.spec.training.seq_len);
  return {samples, inputs.has_job ? samples * length : 0};
}

std::string model_text(const PlanningInputs& inputs) {
  return inputs.has_job ? plans::layers_text(inputs.job.spec.model)
                        : absl::StrCat(inputs.request.profile.layers.size(), " layers");
}

}  // namespace skein::cli
