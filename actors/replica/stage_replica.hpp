#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "actors/worker/prepare_io.hpp"
#include "plans/collectives/gradient_buckets.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan_part.hpp"
#include "plans/worker/pipeline_pass.hpp"

namespace skein::actors {

/// One replica on this worker: its model, and what the plan says of it. What changes while it runs
/// belongs to the components of the Replica actor; only the device writes to what it points to.
struct StageReplica {
  PreparedReplica parts;
  int32_t stage = 0;
  plans::RowRange rows;
  std::vector<plans::Route> routes_forward;
  std::vector<plans::Route> routes_backward;
  double block_count = 0;  // Transformer blocks of the stage.
  double row_share = 0;    // Rows / training.micro_batch_size; times blocks, it is `Work::share`.
  std::vector<plans::GradientBucket> buckets;  // In which the last backward of a step ends.
  double clip_share = 1;                       // `plans::clip_share`
  /// The other end of its pipeline replica, which uses the same embedding; none: it has no such, or
  /// a group adds up that gradient.
  std::optional<plans::ReplicaId> tied_end;
  std::shared_ptr<double> norm_squared = std::make_shared<double>(0);
};
using StageReplicas = std::map<int32_t, StageReplica>;  // By stage.

/// `reduces_gradients`: as the plan's mode says.
StageReplica make_stage_replica(const plans::JobSpec& job, const plans::PlanPart& plan,
                                const PreparedReplica& parts, bool reduces_gradients = true);

/// What its program needs to know of a replica.
plans::StageRole stage_role(const plans::PlanPart& plan, const StageReplica& replica);
plans::GroupRole group_role(const plans::PlanPart& plan, const StageReplica& replica,
                            plans::GroupId group);

/// Null: no replica of that id is here.
const StageReplica* find_replica(const StageReplicas& replicas, plans::ReplicaId id);
/// The replica that is a member of the group; there is one.
const StageReplica& member_of(const StageReplicas& replicas, plans::GroupId group);

double block_count(const plans::ModelSpec& model, const plans::LayerRange& layers);

}  // namespace skein::actors
