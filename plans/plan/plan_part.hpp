#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "plans/base/ids.hpp"
#include "plans/collectives/action_ends.hpp"
#include "plans/collectives/device_groups.hpp"
#include "plans/collectives/reducer_kind.hpp"
#include "plans/plan/plan.hpp"

namespace skein::plans {

/// What a worker knows of a stage: some of its replicas only.
struct StagePart {
  int32_t stage = 0;
  LayerRange layers;
  ReplicaId first;                    // The one that leads: it reports and saves.
  int64_t replica_count = 0;          // In the plan; their ids are those from `first` on.
  std::vector<ReplicaPlan> replicas;  // Those that the worker has to know; ids ascend.
  StageEnds ends;                     // Where devices may form groups, for their order; else empty.
  bool operator==(const StagePart&) const = default;
};

/// A group of more than one member, of which the worker hosts one.
struct GroupPart {
  GroupId id;
  GroupScope scope = GroupScope::kStage;
  ReplicaId member;                       // The worker's.
  uint32_t rank = 0;                      // The member's.
  uint32_t rank_count = 0;                // >= 2
  std::map<uint32_t, WorkerId> partners;  // Who moves bytes with it when they reduce; by rank.
  bool operator==(const GroupPart&) const = default;
};

/// What one worker has to know of a plan: its replicas, those that it exchanges rows with, whom it
/// reduces with, and the actions of its rank. Its size does not depend on how many workers the plan
/// has, but where everybody of a stage exchanges something with everybody else.
struct PlanPart {
  uint64_t generation = 0;
  std::string mode = kSynchronousMode;
  int64_t microbatch_count = 0;  // M
  int64_t microbatch_rows = 0;   // B
  bool recompute = false;
  int32_t stage_count = 0;
  uint32_t worker_max = 0;        // The largest number of a worker in the plan.
  std::vector<StagePart> stages;  // Its own, their neighbours, and those whose snapshots it keeps.
  std::vector<GroupPart> groups;  // Ascending.
  ActionList actions;             // Its rank's; none if it hosts nothing.
  /// Who decides how devices form groups of their own, which depends on all of these: it has all,
  /// and hosts a replica. 0: they form none.
  WorkerId device_leader;
  std::vector<DeviceGroupPart> device_groups;  // Ascending: the worker's, or all.
  bool operator==(const PlanPart&) const = default;
};

/// What decides how much of a plan a worker has to know.
struct PartNeeds {
  ReducerKind reducer = ReducerKind::kSum;
  bool all_of_stage = false;  // Any replicas of its stages may average weights with it.
  bool devices = false;       // They may form groups of their own.
  bool operator==(const PartNeeds&) const = default;
};

/// Cuts a plan into the parts of its workers. Borrows the plan.
class PlanParts {
 public:
  /// `snapshot_peers`: the worker that keeps the snapshots of each stage; 0, or none: nobody.
  /// `times`: of the stages' actions, for the order of what devices do; none: not known.
  PlanParts(const Plan& plan, const PartNeeds& needs, const std::vector<WorkerId>& snapshot_peers,
            const std::vector<ActionTimes>& times = {});

  /// Of a worker that hosts nothing, the part has the stages whose snapshots it keeps.
  PlanPart of(WorkerId worker) const;

 private:
  struct Place {
    size_t stage = 0;
    size_t index = 0;
  };
  using Known = std::map<size_t, std::map<ReplicaId, ReplicaPlan>>;  // By stage.

  void know(const Place& place, Known& known) const;
  void know_routes(const Place& own, int step, Known& known) const;
  void add_groups(const Place& own, Known& known, PlanPart& part) const;
  GroupPart group_part(const ReductionGroup& group, uint32_t rank) const;
  void add_device_groups(WorkerId worker, PlanPart& part) const;
  WorkerId worker_at(ReplicaId id) const { return worker_of_[id.value]; }

  const Plan& plan_;
  const PartNeeds needs_;
  std::map<WorkerId, std::vector<Place>> hosted_;
  std::map<WorkerId, std::vector<size_t>> kept_;  // Stages.
  std::vector<WorkerId> worker_of_;               // [replicas]
  uint32_t worker_max_ = 0;
  std::vector<StageEnds> ends_;                 // [stages], where devices may form groups.
  std::vector<WantedGroup> wanted_;             // The same.
  std::vector<std::vector<WorkerId>> by_rank_;  // [wanted] Members, as they are on the devices.
  std::map<WorkerId, std::vector<size_t>> wanted_of_;
};

/// Checks all that its worker relies on: ranges lie in the model, neighbours have the other side of
/// each row, groups have a partner for each exchange, and each micro-batch passes each stage once.
/// InvalidArgument with the first thing that is wrong.
absl::Status validate(const PlanPart& part, WorkerId worker, const ModelSpec& model,
                      ReducerKind reducer);
/// InvalidArgument if the part says nothing of the stage.
absl::Status check_has_stage(const PlanPart& part, int32_t stage);

// The same as of the whole plan, for what the part has.

const StagePart& stage_at(const PlanPart& part, int32_t stage);
int32_t stage_of(const PlanPart& part, ReplicaId id);
const ReplicaPlan& replica_of(const PlanPart& part, ReplicaId id);
std::vector<Route> routes_from(const PlanPart& part, ReplicaId replica, int step);
/// So many micro-batches, or tokens, of its stage a step has.
int64_t passes_of(const PlanPart& part, const ReplicaPlan& own);
/// Validations go through it; false: another one does that for all of its stage.
bool validates(const PlanPart& part, const ReplicaPlan& own);
/// The replica at the other end of the pipeline replica, if `replica` is at one; none: there is no
/// other, or it is not known.
std::optional<ReplicaId> other_end(const PlanPart& part, ReplicaId replica);
const GroupPart& group_at(const PlanPart& part, GroupId id);
/// The worker's replicas, by stage.
std::vector<ReplicaPlan> hosted_by(const PlanPart& part, WorkerId worker);
/// The layers of the stages that the worker has replicas of, by stage. `stages`: those of a `Plan`
/// or of a `PlanPart`.
template <class Stages>
std::vector<int64_t> hosted_layers(const Stages& stages, WorkerId worker) {
  std::vector<int64_t> layers;
  for (const auto& stage : stages) {
    const bool hosts = std::any_of(stage.replicas.begin(), stage.replicas.end(),
                                   [&](const auto& each) { return each.worker == worker; });
    if (!hosts) continue;
    for (int64_t l = stage.layers.begin; l < stage.layers.end; ++l) layers.push_back(l);
  }
  return layers;
}
/// Everybody whom the part names but `worker`, ascending.
std::vector<WorkerId> peers_in(const PlanPart& part, WorkerId worker);

}  // namespace skein::plans
