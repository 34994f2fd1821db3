#include "actors/replica/stage_replica.hpp"

#include <algorithm>

#include "plans/base/check.hpp"
#include "plans/job/learning_rate.hpp"

namespace skein::actors {

StageReplica make_stage_replica(const plans::JobSpec& job, const plans::PlanPart& plan,
                                const PreparedReplica& parts, bool reduces_gradients) {
  StageReplica replica;
  replica.parts = parts;
  replica.stage = plans::stage_of(plan, parts.id);
  replica.rows = plans::replica_of(plan, parts.id).rows;
  replica.routes_forward = plans::routes_from(plan, parts.id, +1);
  replica.routes_backward = plans::routes_from(plan, parts.id, -1);
  const plans::LayerRange& layers = plans::stage_at(plan, replica.stage).layers;
  replica.block_count = block_count(job.model, layers);
  replica.row_share =
      static_cast<double>(replica.rows.count) / static_cast<double>(job.training.micro_batch_size);
  replica.clip_share = plans::clip_share(job, layers);
  if (job.model.tied_head && !reduces_gradients) {
    const bool is_end = replica.stage == 0 || replica.stage + 1 == plan.stage_count;
    replica.tied_end = plans::other_end(plan, parts.id);
    SKEIN_CHECK(!is_end || plan.stage_count == 1 || replica.tied_end)
        << "the plan does not say who has the other use of the embedding";
  }
  replica.buckets = plans::gradient_buckets(job.model, layers, plans::bucket_cap_mb(job));
  return replica;
}

plans::StageRole stage_role(const plans::PlanPart& plan, const StageReplica& replica) {
  plans::StageRole role;
  role.stage = replica.stage;
  role.is_first = role.stage == 0;
  role.is_last = role.stage + 1 == plan.stage_count;
  role.leads = plans::stage_at(plan, role.stage).first == replica.parts.id;
  role.rows = replica.rows.count;
  const plans::ReplicaPlan& own = plans::replica_of(plan, replica.parts.id);
  role.validates = plans::validates(plan, own);
  role.validation_parts = static_cast<int32_t>(plans::passes_of(plan, own) / plan.microbatch_count);
  role.has_tied_end = replica.tied_end.has_value();
  role.bucket_count = static_cast<int32_t>(replica.buckets.size());
  for (plans::GroupId group : replica.parts.groups) {
    role.groups.push_back(group_role(plan, replica, group));
  }
  return role;
}

/// A tied gradient is one parameter, which the first stage completes last of all.
plans::GroupRole group_role(const plans::PlanPart& plan, const StageReplica& replica,
                            plans::GroupId group) {
  if (plans::group_at(plan, group).scope == plans::GroupScope::kTied) return {group, 1};
  return {group, static_cast<int32_t>(replica.buckets.size())};
}

const StageReplica* find_replica(const StageReplicas& replicas, plans::ReplicaId id) {
  for (const auto& [stage, replica] : replicas) {
    if (replica.parts.id == id) return &replica;
  }
  return nullptr;
}

const StageReplica& member_of(const StageReplicas& replicas, plans::GroupId group) {
  const auto member = std::find_if(replicas.begin(), replicas.end(), [&](const auto& each) {
    const auto& groups = each.second.parts.groups;
    return std::find(groups.begin(), groups.end(), group) != groups.end();
  });
  SKEIN_CHECK(member != replicas.end()) << "no replica of group " << group.value << " is here";
  return member->second;
}

double block_count(const plans::ModelSpec& model, const plans::LayerRange& layers) {
  int64_t blocks = 0;
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    if (plans::layer_kind(model, layer) == plans::LayerKind::kBlock) ++blocks;
  }
  return static_cast<double>(blocks);
}

}  // namespace skein::actors
