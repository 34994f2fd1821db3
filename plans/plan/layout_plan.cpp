#include "plans/plan/layout_plan.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/plan/pipeline_cuts.hpp"
#include "plans/plan/plan_ranks.hpp"
#include "plans/planner/partition_min_max.hpp"
#include "plans/sync/policy_kind.hpp"

namespace skein::plans {
namespace {

/// Number of ranks that the keys of [parallelism] ask for, or 0 if they leave it open.
absl::StatusOr<int64_t> requested_ranks(const ParallelismSpec& parallelism) {
  int64_t ranks = std::max<int64_t>(0, parallelism.pipeline_parallel_degree);
  auto agree = [&](size_t count, int64_t per_rank, const char* key) -> absl::Status {
    if (count == 0) return absl::OkStatus();
    const auto entries = static_cast<int64_t>(count);
    if (entries % per_rank != 0 || (ranks != 0 && ranks * per_rank != entries)) {
      return absl::InvalidArgumentError(absl::StrCat(
          key, " has ", count, " entries but there are ", ranks * per_rank,
          " stages (parallelism.pipeline_parallel_degree, parallelism.virtual_stages or the other "
          "list); give one entry per stage"));
    }
    ranks = entries / per_rank;
    return absl::OkStatus();
  };
  SKEIN_RETURN_IF_ERROR(
      agree(parallelism.layout.size(), parallelism.virtual_stages, "parallelism.layout"));
  SKEIN_RETURN_IF_ERROR(agree(parallelism.replicas.size(), 1, "parallelism.replicas"));
  return ranks;
}

absl::StatusOr<int64_t> rank_count(const JobSpec& job, int64_t available) {
  const ParallelismSpec& parallelism = job.parallelism;
  SKEIN_ASSIGN_OR_RETURN(int64_t ranks, requested_ranks(parallelism));
  const int64_t most = layer_count(job.model) / parallelism.virtual_stages;
  if (ranks == 0) {
    const int64_t pipelines = parallelism.data_parallel_replicate_degree;
    ranks = std::clamp<int64_t>(available / pipelines, 1, std::max<int64_t>(1, most));
  }
  if (ranks > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parallelism.pipeline_parallel_degree = ", ranks, ": a model of ", job.model.layers,
        " blocks can fill at most ", layer_count(job.model), " stages",
        parallelism.virtual_stages == 1
            ? ""
            : absl::StrCat(", and each rank has ", parallelism.virtual_stages)));
  }
  return ranks;
}

absl::StatusOr<std::vector<LayerRange>> explicit_layout(const JobSpec& job) {
  const std::vector<int64_t>& layout = job.parallelism.layout;
  const int64_t blocks = std::accumulate(layout.begin(), layout.end(), int64_t{0});
  if (blocks != job.model.layers) {
    return absl::InvalidArgumentError(
        absl::StrCat("parallelism.layout = [", absl::StrJoin(layout, ", "), "] places ", blocks,
                     " blocks but model.n_layer = ", job.model.layers,
                     "; the entries must add up to the number of blocks"));
  }
  std::vector<LayerRange> ranges;
  int64_t begin = 0;
  int64_t placed = 0;
  for (size_t s = 0; s < layout.size(); ++s) {
    placed += layout[s];
    // The embedding goes with the first stage, the head with the last one.
    const int64_t end = s + 1 == layout.size() ? layer_count(job.model) : placed + 1;
    if (end == begin) {
      return absl::InvalidArgumentError(
          absl::StrCat("parallelism.layout = [", absl::StrJoin(layout, ", "), "]: stage ", s,
                       " is empty; only the first and the last stage may have no block"));
    }
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

std::vector<int64_t> replicas_per_rank(const JobSpec& job, int64_t ranks) {
  if (!job.parallelism.replicas.empty()) return job.parallelism.replicas;
  return std::vector<int64_t>(static_cast<size_t>(ranks),
                              job.parallelism.data_parallel_replicate_degree);
}

/// The replicas of a stage of `rank`: `count` workers from `first` on, rows as even as possible.
absl::StatusOr<std::vector<ReplicaPlan>> place_replicas(const std::vector<WorkerId>& workers,
                                                        int32_t rank, int64_t first, int64_t count,
                                                        int64_t rows) {
  if (count > rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("a stage has ", count, " replicas but training.micro_batch_size = ", rows,
                     "; every replica needs at least one row of a micro-batch"));
  }
  std::vector<ReplicaPlan> replicas;
  for (int64_t r = 0; r < count; ++r) {
    const auto worker = static_cast<size_t>(first + r);
    replicas.push_back({ReplicaId{}, workers[worker], even_rows(rows, r, count), rank});
  }
  return replicas;
}

/// First worker of each rank, and the end of the last one.
std::vector<int64_t> first_workers(const std::vector<int64_t>& replicas) {
  std::vector<int64_t> first = {0};
  for (int64_t count : replicas) first.push_back(first.back() + count);
  return first;
}

}  // namespace

absl::StatusOr<std::vector<LayerRange>> layer_ranges(const JobSpec& job, int64_t stages) {
  if (!job.parallelism.layout.empty()) return explicit_layout(job);
  std::vector<double> cost;
  for (int64_t layer = 0; layer < layer_count(job.model); ++layer) {
    cost.push_back(layer_flops(job.model, layer, 1, job.training.seq_len).total());
  }
  const std::vector<double> speed(static_cast<size_t>(stages), 1.0);
  return partition_min_max(cost, speed);
}

absl::StatusOr<int64_t> layout_worker_count(const JobSpec& job, int64_t available) {
  if (job.parallelism.pipeline_parallel_degree == kAutoDegree) return available;
  if (trains_by_tokens(job)) return available;
  SKEIN_ASSIGN_OR_RETURN(const int64_t ranks, rank_count(job, available));
  return first_workers(replicas_per_rank(job, ranks)).back();
}

absl::StatusOr<Plan> make_layout_plan(const JobSpec& job, const std::vector<WorkerId>& workers,
                                      uint64_t generation, const std::string& mode) {
  const auto available = static_cast<int64_t>(workers.size());
  SKEIN_ASSIGN_OR_RETURN(const int64_t ranks, rank_count(job, available));
  const std::vector<int64_t> replicas = replicas_per_rank(job, ranks);
  const std::vector<int64_t> first = first_workers(replicas);
  if (first.back() > available) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the layout needs ", first.back(), " workers, one per replica, but there are ", available,
        "; start more workers or lower parallelism.pipeline_parallel_degree or the replicas"));
  }
  SKEIN_ASSIGN_OR_RETURN(const ScheduleKind kind,
                         parse_schedule_kind(job.parallelism.pipeline_parallel_schedule));
  Plan plan;
  plan.generation = generation;
  plan.microbatch_count = microbatch_count(job);
  plan.microbatch_rows = job.training.micro_batch_size;
  plan.recompute = job.training.recompute;
  SKEIN_ASSIGN_OR_RETURN(const std::vector<LayerRange> ranges,
                         layer_ranges(job, ranks * job.parallelism.virtual_stages));
  for (size_t s = 0; s < ranges.size(); ++s) {
    const size_t rank = s % static_cast<size_t>(ranks);
    StagePlan& stage = plan.stages.emplace_back();
    stage.layers = ranges[s];
    SKEIN_ASSIGN_OR_RETURN(stage.replicas,
                           place_replicas(workers, static_cast<int32_t>(rank), first[rank],
                                          replicas[rank], plan.microbatch_rows));
  }
  number_replicas(plan.stages);
  plan.groups = reduction_groups(plan.stages, job.model.tied_head);
  SKEIN_RETURN_IF_ERROR(set_schedule(plan, kind));
  plan.mode = mode;
  SKEIN_RETURN_IF_ERROR(validate(plan, job.model));
  return plan;
}

Plan with_workers(Plan plan, const std::vector<WorkerId>& workers) {
  for (StagePlan& stage : plan.stages) {
    for (ReplicaPlan& replica : stage.replicas) {
      const uint32_t position = replica.worker.value;
      SKEIN_CHECK(position >= 1 && position <= workers.size()) << "worker " << position;
      replica.worker = workers[position - 1];
    }
  }
  return plan;
}

absl::StatusOr<Plan> with_positions(Plan plan, const std::vector<WorkerId>& workers) {
  std::map<WorkerId, uint32_t> positions;
  for (const WorkerId worker : workers) {
    positions.emplace(worker, static_cast<uint32_t>(positions.size()) + 1);
  }
  for (StagePlan& stage : plan.stages) {
    for (ReplicaPlan& replica : stage.replicas) {
      const auto found = positions.find(replica.worker);
      if (found == positions.end()) {
        return absl::NotFoundError(
            absl::StrCat("w", replica.worker.value, " of the plan is not among the workers"));
      }
      replica.worker = WorkerId{found->second};
    }
  }
  return plan;
}

std::string layers_text(const ModelSpec& model) {
  return absl::StrCat(layer_count(model), " layers = embedding, ", model.layers,
                      model.layers == 1 ? " block" : " blocks", ", head");
}

std::string stages_text(const Plan& plan) {
  std::string text;
  for (const StagePlan& stage : plan.stages) {
    absl::StrAppend(&text, text.empty() ? "" : " | ", stage.layers.size(), "x",
                    stage.replicas.size());
  }
  if (rank_paths(plan).size() > 1) absl::StrAppend(&text, ", cut ", cuts_text(plan));
  if (plan.mode != kLocalMode) return text;
  const std::string claims = claims_text(plan);
  if (!claims.empty()) absl::StrAppend(&text, ", claims of ", claims, " samples");
  return text;
}

std::set<WorkerId> plan_workers(const Plan& plan) {
  std::set<WorkerId> workers;
  for (const StagePlan& stage : plan.stages) {
    for (const ReplicaPlan& replica : stage.replicas) workers.insert(replica.worker);
  }
  return workers;
}

int64_t worker_count(const Plan& plan) { return static_cast<int64_t>(plan_workers(plan).size()); }

absl::Status check_plan(const JobSpec& job, const Plan& plan) {
  SKEIN_RETURN_IF_ERROR(validate(plan, job.model));
  const int64_t batch = plan.microbatch_count * plan.microbatch_rows;
  if (batch != job.training.global_batch_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the plan has ", plan.microbatch_count, " micro-batches of ", plan.microbatch_rows,
        " rows but training.global_batch_size = ", job.training.global_batch_size,
        "; plan again for this job"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Plan> adopt_plan(const JobSpec& job, Plan plan, const std::vector<WorkerId>& workers,
                                uint64_t generation) {
  SKEIN_RETURN_IF_ERROR(check_plan(job, plan));
  plan.generation = generation;
  const uint32_t last = plan_workers(plan).rbegin()->value;
  if (last > workers.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the plan has a worker ", last, " but there are ", workers.size(), "; start more workers"));
  }
  return with_workers(std::move(plan), workers);
}

}  // namespace skein::plans
