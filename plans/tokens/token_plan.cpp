#include "plans/tokens/token_plan.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/plan/token_lists.hpp"
#include "plans/tokens/token_keys.hpp"
#include "plans/tokens/token_planner.hpp"

namespace skein::plans {
namespace {

/// Those who hold the stage already, then the others, as many as the job lets have it; ascending.
std::vector<WorkerId> workers_of_level(const JobSpec& job, const std::vector<WorkerId>& workers,
                                       size_t level, const LayerRange& layers,
                                       const std::optional<Plan>& current) {
  const int64_t most = job.tokens.workers.empty() ? 0 : job.tokens.workers[level];
  if (most == 0 || most >= static_cast<int64_t>(workers.size())) return workers;
  std::set<WorkerId> holders;
  for (const StagePlan& stage : current ? current->stages : std::vector<StagePlan>()) {
    if (stage.layers != layers) continue;
    for (const ReplicaPlan& replica : stage.replicas) holders.insert(replica.worker);
  }
  std::vector<WorkerId> chosen = workers;
  std::stable_partition(chosen.begin(), chosen.end(),
                        [&](WorkerId worker) { return holders.contains(worker); });
  chosen.resize(static_cast<size_t>(most));
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace

Plan assemble_token_plan(const JobSpec& job, const std::vector<TokenStage>& stages,
                         int64_t step_samples) {
  Plan plan;
  plan.mode = kTokenMode;
  plan.recompute = job.training.recompute;
  for (const TokenStage& each : stages) {
    StagePlan& stage = plan.stages.emplace_back();
    stage.layers = each.layers;
    for (WorkerId worker : each.workers) {
      stage.replicas.push_back({ReplicaId{}, worker, {0, each.samples}, 0});
    }
  }
  plan.microbatch_rows = stages.back().samples;
  plan.microbatch_count = step_samples / plan.microbatch_rows;
  set_token_lists(plan);
  plan.groups = token_groups(plan.stages, job.model.tied_head);
  return plan;
}

absl::StatusOr<Plan> make_token_plan(const JobSpec& job, const std::vector<WorkerId>& workers,
                                     uint64_t generation, const std::optional<Plan>& current) {
  const int64_t levels = sub_model_count(job);
  if (levels > layer_count(job.model)) {
    return absl::InvalidArgumentError(
        absl::StrCat(job.parallelism.pipeline_parallel_degree > 0
                         ? absl::StrCat("parallelism.pipeline_parallel_degree = ", levels)
                         : absl::StrCat("tokens.samples has ", levels, " entries"),
                     ": a model of ", job.model.layers, " blocks has at most ",
                     layer_count(job.model), " sub-models"));
  }
  SKEIN_ASSIGN_OR_RETURN(const std::vector<LayerRange> ranges, layer_ranges(job, levels));
  std::vector<TokenStage> stages;
  for (size_t level = 0; level < ranges.size(); ++level) {
    const int64_t samples =
        job.tokens.samples.empty() ? job.training.micro_batch_size : job.tokens.samples[level];
    stages.push_back(
        {ranges[level], samples, workers_of_level(job, workers, level, ranges[level], current)});
  }
  Plan plan = assemble_token_plan(job, stages, job.training.global_batch_size);
  plan.generation = generation;
  SKEIN_RETURN_IF_ERROR(validate(plan, job.model));
  return plan;
}

absl::StatusOr<PlannedPipeline> replan_tokens(const ReplanRequest& request) {
  PlannedPipeline chosen;
  if (is_chosen_by_planner(request)) {
    SKEIN_ASSIGN_OR_RETURN(const std::vector<MeasuredWorker> measured, measured_of_all(request));
    SKEIN_ASSIGN_OR_RETURN(chosen,
                           plan_tokens(request.job, measured_request(request.job, measured)));
    const auto place = [&request](PlannedPipeline& each) {
      each.plan = with_workers(std::move(each.plan), request.workers);
      each.plan.generation = request.generation;
    };
    place(chosen);
    for (PlannedPipeline& rival : chosen.rivals) place(rival);
    return chosen;
  }
  SKEIN_ASSIGN_OR_RETURN(chosen.plan, make_token_plan(request.job, request.workers,
                                                      request.generation, request.current));
  chosen.reason = absl::StrCat("tokens of ", chosen.plan.stages.size(),
                               chosen.plan.stages.size() == 1 ? " sub-model" : " sub-models");
  return chosen;
}

absl::StatusOr<PlannedPipeline> quick_replan_tokens(const ReplanRequest& request) {
  SKEIN_CHECK(!request.workers.empty()) << "there is no worker to plan for";
  if (!request.current || request.current->mode != kTokenMode) {
    return absl::NotFoundError("there is no plan of tokens to go on from");
  }
  const TokenShape shape = token_shape(*request.current);
  const size_t all = plan_workers(*request.current).size();
  std::vector<TokenStage> stages;
  for (const StagePlan& stage : request.current->stages) {
    const bool was_limited = stage.replicas.size() < all;
    std::vector<WorkerId> workers = request.workers;
    if (was_limited) {
      std::erase_if(workers, [&](WorkerId worker) {
        return std::none_of(stage.replicas.begin(), stage.replicas.end(),
                            [&](const ReplicaPlan& each) { return each.worker == worker; });
      });
      // Who has the memory for it, and is fast enough, is for the planner to say.
      if (workers.empty()) {
        return absl::NotFoundError(
            absl::StrCat("nobody who is here trained sub-model ", stages.size()));
      }
    }
    stages.push_back({stage.layers, stage.replicas.front().rows.count, std::move(workers)});
  }
  PlannedPipeline chosen;
  chosen.plan = assemble_token_plan(request.job, stages, static_cast<int64_t>(shape.samples));
  chosen.plan.generation = request.generation;
  SKEIN_RETURN_IF_ERROR(check_plan(request.job, chosen.plan));
  SKEIN_RETURN_IF_ERROR(check_fits(request, chosen.plan));
  chosen.reason = "for now the tokens of before, by those who are here";
  return chosen;
}

TokenShape token_shape(const Plan& plan) {
  TokenShape shape;
  shape.samples = static_cast<uint64_t>(plan.microbatch_count * plan.microbatch_rows);
  for (const StagePlan& stage : plan.stages) {
    shape.samples_of_token.push_back(static_cast<uint64_t>(stage.replicas.front().rows.count));
  }
  return shape;
}

LevelWorkers level_workers(const Plan& plan) {
  LevelWorkers workers;
  for (const StagePlan& stage : plan.stages) {
    std::vector<WorkerId>& level = workers.emplace_back();
    for (const ReplicaPlan& replica : stage.replicas) level.push_back(replica.worker);
  }
  return workers;
}

}  // namespace skein::plans
