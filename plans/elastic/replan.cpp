#include "plans/elastic/replan.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/elastic/keep_state_in_place.hpp"
#include "plans/elastic/reroute.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/plan/pipeline_cuts.hpp"
#include "plans/plan/pipeline_plan.hpp"
#include "plans/planner/partition_min_max.hpp"
#include "plans/planner/pipelines_planner.hpp"

namespace skein::plans {
namespace {

std::string names(const std::vector<WorkerId>& workers) {
  return absl::StrJoin(workers, ", ", [](std::string* out, WorkerId worker) {
    absl::StrAppend(out, "w", worker.value);
  });
}

/// True if the layout follows the number of workers: one that was made for more of them may not be
/// possible for these.
bool has_open_layout(const ReplanRequest& request) {
  const ParallelismSpec& parallelism = request.job.parallelism;
  return !request.given && parallelism.pipeline_parallel_degree == 0 &&
         parallelism.layout.empty() && parallelism.replicas.empty();
}

/// How many workers there must be for the plan that the job asks for.
absl::StatusOr<int64_t> needed_workers(const ReplanRequest& request) {
  const auto available = static_cast<int64_t>(request.workers.size());
  if (!request.given) return layout_worker_count(request.job, available);
  return int64_t{plan_workers(*request.given).rbegin()->value};
}

std::map<WorkerId, const MeasuredWorker*> measured_by_worker(const ReplanRequest& request) {
  std::map<WorkerId, const MeasuredWorker*> measured;
  for (const MeasuredWorker& each : request.measured) measured.emplace(each.id, &each);
  return measured;
}

/// The planner's plan with micro-batches of the job's own rows or more; where none of these fits
/// the memory, with half of them, a quarter, and so on. What does not fit with one row either is
/// refused as it is with the job's own.
absl::StatusOr<PlannedPipeline> plan_within_memory(PlanRequest asked) {
  const PlannerFunction make_plan = planners().front().make_plan;
  absl::StatusOr<PlannedPipeline> chosen = make_plan(asked);
  const absl::Status lacking = chosen.status();
  const int64_t own_rows = asked.microbatch_rows.front();
  int64_t rows = own_rows;
  while (absl::IsResourceExhausted(chosen.status()) && rows > 1) {
    rows /= 2;
    while (asked.global_batch_rows % rows != 0) --rows;
    asked.microbatch_rows = {rows};
    chosen = make_plan(asked);
  }
  if (lacking.ok()) return chosen;
  if (!chosen.ok()) return lacking;
  chosen->reason = absl::StrCat("micro-batches of ", rows,
                                " rows, as no plan with training.micro_batch_size = ", own_rows,
                                " fits the memory: ", chosen->reason);
  return chosen;
}

absl::StatusOr<PlannedPipeline> ask_planner(const ReplanRequest& request) {
  SKEIN_ASSIGN_OR_RETURN(const std::vector<MeasuredWorker> measured, measured_of_all(request));
  PlanRequest asked = measured_request(request.job, measured);
  SKEIN_ASSIGN_OR_RETURN(PlannedPipeline chosen, plan_within_memory(asked));
  if (!check_plan(request.job, chosen.plan).ok()) {
    // Several stages on a worker may bring both ends of a tied embedding together, which is no plan
    // to run: one stage for each has them apart.
    asked.schedules = {ScheduleKind::k1F1B};
    SKEIN_ASSIGN_OR_RETURN(chosen, plan_within_memory(std::move(asked)));
  }
  // Its workers are 1, 2, ... in the order of the measurements.
  SKEIN_ASSIGN_OR_RETURN(chosen.plan, adopt_plan(request.job, std::move(chosen.plan),
                                                 request.workers, request.generation));
  return chosen;
}

/// Host by host, in the order of their lowest numbers.
std::vector<WorkerId> by_host(const ReplanRequest& request) {
  std::vector<std::vector<WorkerId>> hosts;
  std::map<std::string, size_t> number_of;
  for (const WorkerId worker : request.workers) {
    const auto host = request.hosts.find(worker);
    const size_t next = hosts.size();
    const size_t number = host == request.hosts.end()
                              ? next
                              : number_of.try_emplace(host->second, next).first->second;
    if (number == next) hosts.emplace_back();
    hosts[number].push_back(worker);
  }
  std::vector<WorkerId> workers;
  for (const std::vector<WorkerId>& host : hosts) {
    workers.insert(workers.end(), host.begin(), host.end());
  }
  return workers;
}

absl::StatusOr<PlannedPipeline> lay_out(const ReplanRequest& request, const JobSpec& job,
                                        std::string reason) {
  PlannedPipeline chosen;
  chosen.reason = std::move(reason);
  SKEIN_ASSIGN_OR_RETURN(chosen.plan, make_layout_plan(job, by_host(request), request.generation));
  if (request.current) {
    chosen.plan =
        keep_state_in_place(std::move(chosen.plan), *request.current, request.workers, job.model);
  }
  return chosen;
}

/// Case 1.
absl::StatusOr<PlannedPipeline> own_plan(const ReplanRequest& request) {
  if (is_chosen_by_planner(request)) return ask_planner(request);
  if (!request.given) return lay_out(request, request.job, "layout of the job");
  PlannedPipeline chosen;
  chosen.reason = "plan of the job";
  SKEIN_ASSIGN_OR_RETURN(
      chosen.plan, adopt_plan(request.job, *request.given, request.workers, request.generation));
  return chosen;
}

/// Case 2.
absl::StatusOr<PlannedPipeline> without_lost(const ReplanRequest& request) {
  if (request.current->mode != kSynchronousMode) {
    // Stages between the cuts of several pipeline replicas are none to split rows over, and by
    // tokens each replica of a stage has all rows.
    return absl::NotFoundError("the plan in force is none of synchronous steps");
  }
  PlannedPipeline chosen;
  SKEIN_ASSIGN_OR_RETURN(chosen.plan, reroute(*request.current, request.workers, request.job.model,
                                              request.generation));
  SKEIN_RETURN_IF_ERROR(check_fits(request, chosen.plan));
  const std::set<WorkerId> before = plan_workers(*request.current);
  std::vector<WorkerId> lost;
  std::set_difference(before.begin(), before.end(), request.workers.begin(), request.workers.end(),
                      std::back_inserter(lost));
  chosen.reason = lost.empty() ? std::string("no stage has lost a replica: the plan stays")
                               : absl::StrCat("the rows of ", names(lost),
                                              " go to other replicas: no state moves");
  return chosen;
}

/// The job with an even layout in place of its own.
JobSpec even_job(const ReplanRequest& request) {
  JobSpec job = request.job;
  if (request.given) {
    job.training.micro_batch_size = request.given->microbatch_rows;
    job.training.recompute = request.given->recompute;
    job.parallelism.pipeline_parallel_schedule = std::string(to_text(request.given->schedule));
  }
  const auto workers = static_cast<int64_t>(request.workers.size());
  const int64_t own = request.given ? 0 : request.job.parallelism.pipeline_parallel_degree;
  int64_t ranks = std::min(workers, layer_count(job.model));
  // More stages than were asked for would be no faster, with few micro-batches far slower.
  if (own > 0 && own != kAutoDegree) ranks = std::min(ranks, own);
  job.parallelism.pipeline_parallel_degree = ranks;
  job.parallelism.virtual_stages = 1;
  job.parallelism.layout.clear();
  job.parallelism.replicas.clear();
  for (int64_t rank = 0; rank < ranks; ++rank) {
    job.parallelism.replicas.push_back(
        std::min(even_rows(workers, rank, ranks).count, job.training.micro_batch_size));
  }
  return job;
}

/// Case 3.
absl::StatusOr<PlannedPipeline> even_plan(const ReplanRequest& request, const std::string& why) {
  if (request.given) SKEIN_RETURN_IF_ERROR(check_plan(request.job, *request.given));
  JobSpec job = even_job(request);
  const std::string reason =
      absl::StrCat(why, ": an even layout of ", job.parallelism.replicas.size(), " stages");
  absl::StatusOr<PlannedPipeline> chosen = lay_out(request, job, reason);
  if (chosen.ok()) return chosen;
  job.parallelism.pipeline_parallel_schedule = std::string(to_text(ScheduleKind::k1F1B));
  return lay_out(request, job, reason);
}

/// The workers in the order of the stages that they hold in the current plan, then the others.
std::vector<WorkerId> in_stage_order(const ReplanRequest& request) {
  std::vector<WorkerId> order;
  std::set<WorkerId> added;
  auto add = [&](WorkerId worker) {
    const bool is_there =
        std::binary_search(request.workers.begin(), request.workers.end(), worker);
    if (is_there && added.insert(worker).second) order.push_back(worker);
  };
  for (const StagePlan& stage : request.current->stages) {
    for (const ReplicaPlan& replica : stage.replicas) add(replica.worker);
  }
  for (WorkerId worker : request.workers) add(worker);
  return order;
}

/// A plan of pipeline replicas for the workers themselves.
absl::StatusOr<PlannedPipeline> ask_pipelines_planner(const ReplanRequest& request) {
  SKEIN_ASSIGN_OR_RETURN(const std::vector<MeasuredWorker> measured, measured_of_all(request));
  const PlanRequest asked = measured_request(request.job, measured);
  SKEIN_ASSIGN_OR_RETURN(
      PlannedPipeline chosen,
      plan_pipeline_replicas(request.job, asked,
                             disturbed_clusters(asked.cluster, request.workers, request.stalls)));
  chosen.plan = with_workers(std::move(chosen.plan), request.workers);
  chosen.plan.generation = request.generation;
  return chosen;
}

/// Blocks of each stage, so that the slowest stage is as fast as possible.
absl::StatusOr<std::vector<int64_t>> layout_by_speed(const JobSpec& job,
                                                     const std::vector<double>& stage_speed) {
  std::vector<double> cost;
  const int64_t layers = layer_count(job.model);
  for (int64_t layer = 0; layer < layers; ++layer) {
    cost.push_back(layer_flops(job.model, layer, 1, job.training.seq_len).total());
  }
  SKEIN_ASSIGN_OR_RETURN(const std::vector<LayerRange> ranges,
                         partition_min_max(cost, stage_speed));
  std::vector<int64_t> blocks;
  for (const LayerRange& range : ranges) {
    // The embedding is the first layer, the head the last one.
    blocks.push_back(range.size() - (range.begin == 0 ? 1 : 0) - (range.end == layers ? 1 : 0));
  }
  return blocks;
}

absl::StatusOr<PlannedPipeline> even_by_speed(const ReplanRequest& request,
                                              const std::string& why) {
  const std::vector<WorkerId> order = in_stage_order(request);
  const std::map<WorkerId, const MeasuredWorker*> by_worker = measured_by_worker(request);
  std::vector<MeasuredWorker> measured;
  for (WorkerId worker : order) {
    const auto found = by_worker.find(worker);
    if (found == by_worker.end()) {
      return absl::FailedPreconditionError(absl::StrCat(names({worker}), " has not measured"));
    }
    measured.push_back(*found->second);
  }
  const PlanRequest asked = measured_request(request.job, measured);
  JobSpec job = even_job(request);
  // In a plan of pipeline replicas each has micro-batches of its own; by tokens they are as large
  // as a token of the last sub-model.
  if (request.current->mode == kSynchronousMode) {
    job.training.micro_batch_size = request.current->microbatch_rows;
    job.training.recompute = request.current->recompute;
  }
  job.parallelism.pipeline_parallel_schedule = std::string(to_text(ScheduleKind::k1F1B));
  const auto ranks = static_cast<size_t>(job.parallelism.pipeline_parallel_degree);
  std::vector<double> speed(ranks);
  size_t worker = 0;
  for (size_t rank = 0; rank < ranks; ++rank) {
    int64_t& replicas = job.parallelism.replicas[rank];
    replicas = std::min(replicas, job.training.micro_batch_size);
    for (int64_t r = 0; r < replicas; ++r) speed[rank] += asked.cluster.devices[worker++].speed;
  }
  SKEIN_ASSIGN_OR_RETURN(job.parallelism.layout, layout_by_speed(job, speed));
  PlannedPipeline chosen;
  chosen.reason = absl::StrCat(why, ": for now an even layout by speed of ", ranks, " stages");
  SKEIN_ASSIGN_OR_RETURN(chosen.plan, make_layout_plan(job, order, request.generation));
  SKEIN_RETURN_IF_ERROR(check_fits(request, chosen.plan));
  SKEIN_RETURN_IF_ERROR(check_plan(request.job, chosen.plan));
  return chosen;
}

}  // namespace

absl::StatusOr<PlannedPipeline> replan(const ReplanRequest& request) {
  SKEIN_CHECK(!request.workers.empty()) << "there is no worker to plan for";
  const bool may_reroute = request.is_urgent && request.current.has_value();
  if (may_reroute && is_chosen_by_planner(request)) {
    absl::StatusOr<PlannedPipeline> rerouted = without_lost(request);
    if (rerouted.ok()) return rerouted;
  }
  SKEIN_ASSIGN_OR_RETURN(const int64_t needed, needed_workers(request));
  std::string why = absl::StrCat("the job's plan needs ", needed, " workers and there are ",
                                 request.workers.size());
  if (needed <= static_cast<int64_t>(request.workers.size())) {
    absl::StatusOr<PlannedPipeline> own = own_plan(request);
    if (own.ok() || !request.current || !has_open_layout(request)) return own;
    why = std::string(own.status().message());
  }
  if (may_reroute) {
    absl::StatusOr<PlannedPipeline> rerouted = without_lost(request);
    if (rerouted.ok()) return rerouted;
  }
  return even_plan(request, why);
}

absl::StatusOr<std::vector<MeasuredWorker>> measured_of_all(const ReplanRequest& request) {
  const std::map<WorkerId, const MeasuredWorker*> by_worker = measured_by_worker(request);
  std::vector<MeasuredWorker> measured;
  std::vector<WorkerId> missing;
  for (const WorkerId worker : request.workers) {
    const auto found = by_worker.find(worker);
    if (found == by_worker.end()) {
      missing.push_back(worker);
    } else {
      measured.push_back(*found->second);
    }
  }
  if (!missing.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the planner needs measurements of all ", request.workers.size(),
                     " workers and has none of ", names(missing), "; let them measure first"));
  }
  return measured;
}

absl::Status check_fits(const ReplanRequest& request, const Plan& plan) {
  if (request.only_saves) return absl::OkStatus();
  const absl::StatusOr<std::vector<MeasuredWorker>> measured = measured_of_all(request);
  if (!measured.ok()) return absl::OkStatus();
  const absl::StatusOr<Plan> positioned = with_positions(plan, request.workers);
  if (!positioned.ok()) return absl::OkStatus();
  const PlanRequest asked = measured_request(request.job, *measured);
  const int64_t claims = plan.mode == kLocalMode ? request.job.sync.claims_in_flight : 1;
  return check_memory(*positioned, asked.profile, asked.cluster, claims);
}

bool is_chosen_by_planner(const ReplanRequest& request) {
  return !request.given && request.job.parallelism.pipeline_parallel_degree == kAutoDegree;
}

absl::StatusOr<PlannedPipeline> replan_pipeline_replicas(const ReplanRequest& request) {
  if (is_chosen_by_planner(request)) return ask_pipelines_planner(request);
  PlannedPipeline chosen;
  SKEIN_ASSIGN_OR_RETURN(chosen.plan,
                         make_pipeline_plan(request.job, by_host(request), request.generation));
  if (request.current) {
    chosen.plan = keep_state_in_place(std::move(chosen.plan), *request.current, request.workers,
                                      request.job.model);
  }
  chosen.reason = absl::StrCat(pipeline_layout(chosen.plan).pipelines,
                               " pipeline replicas of the job's pipeline");
  return chosen;
}

absl::StatusOr<PlannedPipeline> quick_replan_pipeline_replicas(const ReplanRequest& request) {
  SKEIN_CHECK(!request.workers.empty()) << "there is no worker to plan for";
  if (!request.current) return absl::NotFoundError("there is no plan to go on from");
  if (request.current->mode != kLocalMode) {
    return absl::NotFoundError("the plan in force has no pipeline replicas");
  }
  const std::set<WorkerId> here(request.workers.begin(), request.workers.end());
  std::vector<PipelineCuts> pipelines = cuts_of(*request.current);
  const size_t lost = std::erase_if(pipelines, [&](const PipelineCuts& each) {
    return !std::all_of(each.workers.begin(), each.workers.end(),
                        [&](WorkerId worker) { return here.contains(worker); });
  });
  if (pipelines.empty()) return absl::NotFoundError("no pipeline replica is whole");
  // A run may be resumed with other micro-batches.
  if (request.current->microbatch_count != microbatch_count(request.job)) {
    for (PipelineCuts& each : pipelines) each.rows = 0;
  }
  PlannedPipeline chosen;
  SKEIN_ASSIGN_OR_RETURN(chosen.plan,
                         make_plan_of_cuts(request.job, pipelines, request.generation));
  SKEIN_RETURN_IF_ERROR(check_fits(request, chosen.plan));
  chosen.reason = absl::StrCat("for now without ", lost, " of ", lost + pipelines.size(),
                               " pipeline replicas, the others as they are");
  return chosen;
}

absl::StatusOr<PlannedPipeline> quick_replan(const ReplanRequest& request) {
  SKEIN_CHECK(!request.workers.empty()) << "there is no worker to plan for";
  if (!request.current) return absl::NotFoundError("there is no plan to go on from");
  absl::StatusOr<PlannedPipeline> rerouted = without_lost(request);
  if (rerouted.ok()) return rerouted;
  return even_by_speed(request, std::string(rerouted.status().message()));
}

}  // namespace skein::plans
