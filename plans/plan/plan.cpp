#include "plans/plan/plan.hpp"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/plan/plan_ranks.hpp"
#include "plans/plan/token_lists.hpp"

namespace skein::plans {
namespace {

absl::Status wrong(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("the plan is broken: ", what));
}

/// All replicas of a stage have the rows of its tokens, which those of the stage before divide.
absl::Status check_token_rows(const Plan& plan) {
  int64_t before = 1;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const RowRange& rows = plan.stages[s].replicas.front().rows;
    for (const ReplicaPlan& replica : plan.stages[s].replicas) {
      if (replica.rows.begin != 0 || replica.rows != rows) {
        return wrong(
            absl::StrCat("replica ", replica.id.value, " has other tokens than stage ", s));
      }
    }
    if (rows.count < before || rows.count % before != 0) {
      return wrong(absl::StrCat("stage ", s, " has tokens of ", rows.count,
                                " rows, behind ones of ", before));
    }
    before = rows.count;
  }
  if (before == plan.microbatch_rows) return absl::OkStatus();
  return wrong(absl::StrCat("its last stage has tokens of ", before,
                            " rows, and micro-batches have ", plan.microbatch_rows));
}

absl::Status check_stages(const Plan& plan, int64_t layer_count) {
  const bool tiles_rows = plan.mode != kTokenMode;
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
      const bool fits = replica.rows.count >= 1 && replica.rows.count <= plan.microbatch_rows - row;
      if (replica.rows.begin != row || !fits) {
        return wrong(absl::StrCat("replica ", replica.id.value, " does not begin at row ", row));
      }
      if (tiles_rows) row = replica.rows.end();
    }
    if (stage.replicas.empty()) return wrong(absl::StrCat("stage ", s, " has no replica"));
    if (tiles_rows && row != plan.microbatch_rows) {
      return wrong(
          absl::StrCat("stage ", s, " covers ", row, " of ", plan.microbatch_rows, " rows"));
    }
  }
  if (!tiles_rows) SKEIN_RETURN_IF_ERROR(check_token_rows(plan));
  if (plan.mode == kLocalMode && !has_pipelines(plan)) {
    return wrong("it has no pipeline replicas: the stages' replicas have unlike rows");
  }
  if (layer != layer_count) {
    return wrong(absl::StrCat("it covers ", layer, " of ", layer_count, " layers"));
  }
  return absl::OkStatus();
}

/// Some worker has both ends of the pipeline.
bool ends_meet(const Plan& plan) {
  const std::vector<ReplicaPlan>& back = plan.stages.back().replicas;
  return std::any_of(back.begin(), back.end(), [&](const ReplicaPlan& end) {
    const std::vector<ReplicaPlan>& front = plan.stages.front().replicas;
    return std::any_of(front.begin(), front.end(),
                       [&](const ReplicaPlan& each) { return each.rank == end.rank; });
  });
}

/// Both uses of a tied embedding are added up where both are.
absl::Status check_token_ends(const Plan& plan) {
  const std::vector<ReplicaPlan>& front = plan.stages.front().replicas;
  for (const ReplicaPlan& end : plan.stages.back().replicas) {
    const bool has_front = std::any_of(front.begin(), front.end(), [&](const ReplicaPlan& each) {
      return each.worker == end.worker;
    });
    if (has_front) continue;
    return wrong(absl::StrCat("worker ", end.worker.value,
                              " has the last sub-model and not the first, and they share the "
                              "embedding"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status validate(const Plan& plan, const ModelSpec& model) {
  SKEIN_RETURN_IF_ERROR(validate(plan, layer_count(model), model.tied_head));
  if (!model.tied_head || plan.stages.size() == 1) return absl::OkStatus();
  if (plan.mode == kTokenMode) return check_token_ends(plan);
  // Pipeline replicas' ends do not add up their gradients in a group.
  if (plan.mode != kLocalMode && ends_meet(plan)) {
    return absl::InvalidArgumentError(
        "the first and the last stage are on the same workers and share the embedding, which is "
        "then one parameter with two copies on one device; set model.tie_word_embeddings = false, "
        "or use more workers or fewer stages");
  }
  return absl::OkStatus();
}

absl::Status validate(const Plan& plan, int64_t layer_count, bool tied_head) {
  if (plan.stages.empty() || plan.microbatch_count < 1 || plan.microbatch_rows < 1 ||
      plan.microbatch_count > std::numeric_limits<int32_t>::max()) {
    return wrong("it has no stages or no micro-batches");
  }
  SKEIN_RETURN_IF_ERROR(check_stages(plan, layer_count));
  const std::vector<ReductionGroup> groups = plan.mode == kTokenMode
                                                 ? token_groups(plan.stages, tied_head)
                                                 : reduction_groups(plan.stages, tied_head);
  if (plan.groups != groups) {
    return wrong("its reduction groups are not those of its stages");
  }
  return check_ranks(plan);
}

int64_t passes_of_stage(const Plan& plan, int32_t stage) {
  if (plan.mode != kTokenMode) return plan.microbatch_count;
  const StagePlan& own = plan.stages[static_cast<size_t>(stage)];
  return plan.microbatch_count * plan.microbatch_rows / own.replicas.front().rows.count;
}

std::vector<ReplicaId> validating_replicas(const Plan& plan) {
  std::vector<ReplicaId> ids;
  for (const ReplicaPlan& replica : plan.stages.back().replicas) {
    ids.push_back(replica.id);
    if (plan.mode == kTokenMode) break;  // Each has all rows.
  }
  return ids;
}

bool has_pipelines(const Plan& plan) {
  const StagePlan& first = plan.stages.front();
  return std::all_of(plan.stages.begin(), plan.stages.end(), [&](const StagePlan& stage) {
    return std::equal(stage.replicas.begin(), stage.replicas.end(), first.replicas.begin(),
                      first.replicas.end(),
                      [](const auto& a, const auto& b) { return a.rows == b.rows; });
  });
}

RowRange even_rows(int64_t rows, int64_t index, int64_t count) {
  const int64_t base = rows / count;
  const int64_t rest = rows % count;
  return {index * base + std::min(index, rest), base + (index < rest ? 1 : 0)};
}

void number_replicas(std::vector<StagePlan>& stages) {
  uint32_t next = 0;
  for (StagePlan& stage : stages) {
    for (ReplicaPlan& replica : stage.replicas) replica.id.value = next++;
  }
}

std::vector<ReductionGroup> reduction_groups(const std::vector<StagePlan>& stages, bool tied_head) {
  std::vector<ReductionGroup> groups;
  auto members = [](const StagePlan& stage) {
    std::vector<ReplicaId> ids;
    for (const ReplicaPlan& replica : stage.replicas) ids.push_back(replica.id);
    return ids;
  };
  for (size_t s = 0; s < stages.size(); ++s) {
    groups.push_back({GroupId{static_cast<uint32_t>(s)}, GroupScope::kStage,
                      static_cast<int32_t>(s), members(stages[s])});
  }
  if (tied_head && stages.size() > 1) {
    ReductionGroup tied{GroupId{static_cast<uint32_t>(stages.size())}, GroupScope::kTied, 0,
                        members(stages.front())};
    for (ReplicaId id : members(stages.back())) tied.members.push_back(id);
    groups.push_back(std::move(tied));
  }
  return groups;
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
  if (plan.mode == kTokenMode) return {};  // The coordinator says where each token goes.
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
