#include "plans/plan.hpp"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/partition_min_max.hpp"

namespace skein::plans {
namespace {

/// Number of stages that the keys of [parallelism] ask for, or 0 if they leave it open.
absl::StatusOr<int64_t> requested_stages(const ParallelismSpec& parallelism) {
  int64_t stages = parallelism.pipeline_parallel_degree;
  auto agree = [&](size_t count, const char* key) -> absl::Status {
    if (count == 0) return absl::OkStatus();
    if (stages != 0 && stages != static_cast<int64_t>(count)) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, " has ", count, " entries but there are ", stages,
                       " stages (parallelism.pipeline_parallel_degree or the other list); "
                       "give one entry per stage"));
    }
    stages = static_cast<int64_t>(count);
    return absl::OkStatus();
  };
  SKEIN_RETURN_IF_ERROR(agree(parallelism.layout.size(), "parallelism.layout"));
  SKEIN_RETURN_IF_ERROR(agree(parallelism.replicas.size(), "parallelism.replicas"));
  return stages;
}

absl::StatusOr<int64_t> stage_count(const JobSpec& job, int64_t available) {
  SKEIN_ASSIGN_OR_RETURN(int64_t stages, requested_stages(job.parallelism));
  const int64_t layers = layer_count(job.model);
  if (stages == 0) {
    const int64_t columns = job.parallelism.data_parallel_replicate_degree;
    stages = std::clamp<int64_t>(available / columns, 1, layers);
  }
  if (stages > layers) {
    return absl::InvalidArgumentError(
        absl::StrCat("parallelism.pipeline_parallel_degree = ", stages, ": a model of ",
                     job.model.layers, " blocks can fill at most ", layers, " stages"));
  }
  return stages;
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

absl::StatusOr<std::vector<LayerRange>> layer_ranges(const JobSpec& job, int64_t stages) {
  if (!job.parallelism.layout.empty()) return explicit_layout(job);
  std::vector<double> cost;
  for (int64_t layer = 0; layer < layer_count(job.model); ++layer) {
    cost.push_back(layer_flops(job.model, layer, 1, job.training.seq_len).total());
  }
  const std::vector<double> speed(static_cast<size_t>(stages), 1.0);
  return partition_min_max(cost, speed);
}

std::vector<int64_t> replicas_per_stage(const JobSpec& job, int64_t stages) {
  if (!job.parallelism.replicas.empty()) return job.parallelism.replicas;
  return std::vector<int64_t>(static_cast<size_t>(stages),
                              job.parallelism.data_parallel_replicate_degree);
}

/// Rows as even as possible, earlier replicas get the rest.
RowRange even_rows(int64_t rows, int64_t index, int64_t count) {
  const int64_t base = rows / count;
  const int64_t rest = rows % count;
  return {index * base + std::min(index, rest), base + (index < rest ? 1 : 0)};
}

std::vector<ReductionGroup> make_groups(const Plan& plan, const ModelSpec& model) {
  std::vector<ReductionGroup> groups;
  auto members = [](const StagePlan& stage) {
    std::vector<ReplicaId> ids;
    for (const ReplicaPlan& replica : stage.replicas) ids.push_back(replica.id);
    return ids;
  };
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    groups.push_back({GroupId{static_cast<uint32_t>(s)}, GroupScope::kStage,
                      static_cast<int32_t>(s), members(plan.stages[s])});
  }
  if (model.tied_head && plan.stages.size() > 1) {
    ReductionGroup tied{GroupId{static_cast<uint32_t>(plan.stages.size())}, GroupScope::kTied, 0,
                        members(plan.stages.front())};
    for (ReplicaId id : members(plan.stages.back())) tied.members.push_back(id);
    groups.push_back(std::move(tied));
  }
  return groups;
}

absl::Status wrong(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("the plan is broken: ", what));
}

absl::Status check_stages(const Plan& plan, const ModelSpec& model) {
  int64_t layer = 0;
  uint32_t next_replica = 0;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan& stage = plan.stages[s];
    if (stage.layers.begin != layer || stage.layers.end <= layer) {
      return wrong(absl::StrCat("stage ", s, " does not begin at layer ", layer));
    }
    layer = stage.layers.end;
    int64_t row = 0;
    for (const ReplicaPlan& replica : stage.replicas) {
      if (replica.id.value != next_replica++) {
        return wrong(absl::StrCat("replica ", replica.id.value, " is out of order"));
      }
      if (replica.worker.value == 0) return wrong("a replica has no worker");
      if (replica.rows.begin != row || replica.rows.count < 1) {
        return wrong(absl::StrCat("replica ", replica.id.value, " does not begin at row ", row));
      }
      row = replica.rows.end();
    }
    if (row != plan.microbatch_rows) {
      return wrong(
          absl::StrCat("stage ", s, " covers ", row, " of ", plan.microbatch_rows, " rows"));
    }
  }
  if (layer != layer_count(model)) {
    return wrong(absl::StrCat("it covers ", layer, " of ", layer_count(model), " layers"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> replica_count(const JobSpec& job, int64_t available) {
  SKEIN_ASSIGN_OR_RETURN(const int64_t stages, stage_count(job, available));
  const std::vector<int64_t> replicas = replicas_per_stage(job, stages);
  return std::accumulate(replicas.begin(), replicas.end(), int64_t{0});
}

absl::StatusOr<Plan> make_plan(const JobSpec& job, const std::vector<WorkerId>& workers,
                               uint64_t generation) {
  const auto available = static_cast<int64_t>(workers.size());
  SKEIN_ASSIGN_OR_RETURN(const int64_t needed, replica_count(job, available));
  SKEIN_ASSIGN_OR_RETURN(const int64_t stages, stage_count(job, available));
  if (needed > available) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the layout needs ", needed, " workers, one per replica, but there are ", available,
        "; start more workers or lower parallelism.pipeline_parallel_degree or the replicas"));
  }
  Plan plan;
  plan.generation = generation;
  SKEIN_ASSIGN_OR_RETURN(plan.schedule,
                         parse_schedule_kind(job.parallelism.pipeline_parallel_schedule));
  plan.microbatch_count = microbatch_count(job);
  plan.microbatch_rows = job.training.micro_batch_size;
  SKEIN_ASSIGN_OR_RETURN(const std::vector<LayerRange> ranges, layer_ranges(job, stages));
  const std::vector<int64_t> replicas = replicas_per_stage(job, stages);
  uint32_t next = 0;
  for (size_t s = 0; s < ranges.size(); ++s) {
    if (replicas[s] > plan.microbatch_rows) {
      return absl::InvalidArgumentError(absl::StrCat(
          "stage ", s, " has ", replicas[s], " replicas but training.micro_batch_size = ",
          plan.microbatch_rows, "; every replica needs at least one row of a micro-batch"));
    }
    StagePlan& stage = plan.stages.emplace_back();
    stage.layers = ranges[s];
    for (int64_t r = 0; r < replicas[s]; ++r, ++next) {
      stage.replicas.push_back(
          {ReplicaId{next}, workers[next], even_rows(plan.microbatch_rows, r, replicas[s])});
    }
  }
  plan.groups = make_groups(plan, job.model);
  return plan;
}

absl::Status validate(const Plan& plan, const ModelSpec& model) {
  if (plan.stages.empty() || plan.microbatch_count < 1 || plan.microbatch_rows < 1) {
    return wrong("it has no stages or no micro-batches");
  }
  SKEIN_RETURN_IF_ERROR(check_stages(plan, model));
  if (plan.groups != make_groups(plan, model)) {
    return wrong("its reduction groups are not those of its stages");
  }
  return absl::OkStatus();
}

const ReplicaPlan& replica_of(const Plan& plan, ReplicaId id) {
  const StagePlan& stage = plan.stages[static_cast<size_t>(stage_of(plan, id))];
  return stage.replicas[id.value - stage.replicas.front().id.value];
}

int32_t stage_of(const Plan& plan, ReplicaId id) {
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    if (id <= plan.stages[s].replicas.back().id) return static_cast<int32_t>(s);
  }
  SKEIN_CHECK(false) << "no replica " << id;
  return -1;
}

int64_t replica_count(const Plan& plan) {
  return plan.stages.empty() ? 0 : int64_t{plan.stages.back().replicas.back().id.value} + 1;
}

std::vector<Route> routes_from(const Plan& plan, ReplicaId replica, int step) {
  SKEIN_CHECK(step == 1 || step == -1) << step;
  const int32_t neighbour = stage_of(plan, replica) + step;
  if (neighbour < 0 || neighbour >= static_cast<int32_t>(plan.stages.size())) return {};
  const RowRange mine = replica_of(plan, replica).rows;
  std::vector<Route> routes;
  for (const ReplicaPlan& other : plan.stages[static_cast<size_t>(neighbour)].replicas) {
    const int64_t begin = std::max(mine.begin, other.rows.begin);
    const int64_t end = std::min(mine.end(), other.rows.end());
    if (begin < end) routes.push_back({replica, other.id, {begin, end - begin}});
  }
  return routes;
}

}  // namespace skein::plans
