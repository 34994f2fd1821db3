#include "plans/tokens/token_plan.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plans/base/status_macros.hpp"
#include "plans/plan/layout_plan.hpp"
#include "plans/plan/token_lists.hpp"
#include "plans/sync/policy_kind.hpp"

namespace skein::plans {
namespace {

template <class... Why>
absl::Status refuse(const Why&... why) {
  return absl::InvalidArgumentError(absl::StrCat(why...));
}

int64_t level_count(const JobSpec& job) {
  if (!job.parallelism.layout.empty()) return static_cast<int64_t>(job.parallelism.layout.size());
  if (job.parallelism.pipeline_parallel_degree > 0) return job.parallelism.pipeline_parallel_degree;
  return std::max<int64_t>(1, static_cast<int64_t>(job.tokens.samples.size()));
}

/// Keys that say something else about who computes what.
absl::Status check_other_keys(const JobSpec& job) {
  const char* why = "with sync.policy = \"tokens\" ";
  const ParallelismSpec& parallelism = job.parallelism;
  if (parallelism.pipeline_parallel_degree == kAutoDegree) {
    return refuse("parallelism.pipeline_parallel_degree = \"auto\": ", why,
                  "give the number of sub-models, or their blocks by parallelism.layout");
  }
  if (!parallelism.plan.empty() || !parallelism.replicas.empty()) {
    return refuse(parallelism.plan.empty() ? "parallelism.replicas" : "parallelism.plan", ": ", why,
                  "every worker may train every sub-model; limit that by tokens.workers");
  }
  if (parallelism.data_parallel_replicate_degree != 1 || parallelism.virtual_stages != 1) {
    return refuse("parallelism.data_parallel_replicate_degree and virtual_stages: ", why,
                  "leave them out: workers pull tokens, as many as there are");
  }
  if (job.sync.reducer != "sum") {
    return refuse("sync.reducer = \"", job.sync.reducer, "\": ", why,
                  "gradients are sums over as many samples as a worker came to; leave it out");
  }
  if (job.comm.backend == "nccl") {
    return refuse(
        "comm.backend = \"nccl\": ", why,
        "sub-models are reduced as they end, in no order that devices could agree on; use "
        "\"auto\" or \"gloo\"");
  }
  if (job.model.tied_head && level_count(job) > 1) {
    return refuse(
        "model.tie_word_embeddings = true: ", why, "and ", level_count(job),
        " sub-models a worker would have two copies of the embedding; set it to false, or "
        "use one sub-model");
  }
  return absl::OkStatus();
}

absl::Status check_samples(const JobSpec& job) {
  const std::vector<int64_t>& samples = job.tokens.samples;
  const std::string all = absl::StrCat("tokens.samples = [", absl::StrJoin(samples, ", "), "]: ");
  const int64_t levels = level_count(job);
  if (!samples.empty() && static_cast<int64_t>(samples.size()) != levels) {
    return refuse(all, "one entry for each of the ", levels, " sub-models is expected");
  }
  int64_t before = 1;
  for (const int64_t each : samples) {
    if (each < before || each % before != 0) {
      return refuse(all, "each must be a multiple of the one before it, and at least 1");
    }
    if (&each != &samples.front() && each / before > kTokenInputsMax) {
      return refuse(all, "one may be ", kTokenInputsMax, " times the one before it at most");
    }
    before = each;
  }
  const int64_t least = samples.empty() ? job.training.micro_batch_size : samples.front();
  if (job.training.global_batch_size / least > kTokensMax) {
    return refuse(samples.empty() ? "training.micro_batch_size" : "tokens.samples", ": ",
                  job.training.global_batch_size / least, " tokens in a step are more than ",
                  kTokensMax, "; make them larger");
  }
  if (job.training.global_batch_size % before != 0) {
    return refuse(all, "the last one must divide training.global_batch_size = ",
                  job.training.global_batch_size);
  }
  return absl::OkStatus();
}

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

absl::Status check_tokens(const JobSpec& job) {
  const TokenSpec& tokens = job.tokens;
  if (!trains_by_tokens(job)) {
    if (tokens == TokenSpec()) return absl::OkStatus();
    return refuse("the keys of [tokens] are for sync.policy = \"tokens\", and it is \"",
                  job.sync.policy, "\"");
  }
  constexpr int64_t kAheadMax = 64;
  if (tokens.ahead < 1 || tokens.ahead > kAheadMax) {
    return refuse("tokens.ahead = ", tokens.ahead, ": must be in [1, ", kAheadMax, "]");
  }
  SKEIN_RETURN_IF_ERROR(check_other_keys(job));
  const int64_t levels = level_count(job);
  if (!tokens.workers.empty() && static_cast<int64_t>(tokens.workers.size()) != levels) {
    return refuse("tokens.workers has ", tokens.workers.size(), " entries and there are ", levels,
                  " sub-models; give one for each, 0 for all workers");
  }
  for (const int64_t each : tokens.workers) {
    if (each < 0) return refuse("tokens.workers (one entry) = ", each, ": must be at least 0");
  }
  return check_samples(job);
}

absl::StatusOr<Plan> make_token_plan(const JobSpec& job, const std::vector<WorkerId>& workers,
                                     uint64_t generation, const std::optional<Plan>& current) {
  Plan plan;
  plan.generation = generation;
  plan.mode = kTokenMode;
  plan.recompute = job.training.recompute;
  const int64_t levels = level_count(job);
  if (levels > layer_count(job.model)) {
    return refuse("parallelism.pipeline_parallel_degree = ", levels, ": a model of ",
                  job.model.layers, " blocks has at most ", layer_count(job.model), " sub-models");
  }
  SKEIN_ASSIGN_OR_RETURN(const std::vector<LayerRange> ranges, layer_ranges(job, levels));
  for (size_t level = 0; level < ranges.size(); ++level) {
    StagePlan& stage = plan.stages.emplace_back();
    stage.layers = ranges[level];
    const int64_t rows =
        job.tokens.samples.empty() ? job.training.micro_batch_size : job.tokens.samples[level];
    for (WorkerId worker : workers_of_level(job, workers, level, stage.layers, current)) {
      stage.replicas.push_back({ReplicaId{}, worker, {0, rows}, 0});
    }
    plan.microbatch_rows = rows;
  }
  plan.microbatch_count = job.training.global_batch_size / plan.microbatch_rows;
  set_token_lists(plan);
  plan.groups = reduction_groups(plan.stages, job.model.tied_head);
  SKEIN_RETURN_IF_ERROR(validate(plan, job.model));
  return plan;
}

absl::StatusOr<PlannedPipeline> replan_tokens(const ReplanRequest& request) {
  PlannedPipeline chosen;
  SKEIN_ASSIGN_OR_RETURN(chosen.plan, make_token_plan(request.job, request.workers,
                                                      request.generation, request.current));
  chosen.reason = absl::StrCat("tokens of ", chosen.plan.stages.size(),
                               chosen.plan.stages.size() == 1 ? " sub-model" : " sub-models");
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
