#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "plans/base/ids.hpp"
#include "plans/job/model_spec.hpp"
#include "plans/schedule/schedule.hpp"

namespace skein::plans {

/// Rows [begin, begin + count) of a micro-batch of B samples.
struct RowRange {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t end() const { return begin + count; }
  bool operator==(const RowRange&) const = default;
};

/// One copy of a stage.
struct ReplicaPlan {
  ReplicaId id;
  WorkerId worker;
  /// Its rows of every micro-batch; the replicas of a stage tile [0, B) in order. `kTokenMode`:
  /// from 0 on, those of a token of the stage.
  RowRange rows;
  int32_t rank = 0;  // Whose list of `Plan::actions` its worker follows.
  bool operator==(const ReplicaPlan&) const = default;
};

/// What a stage's actions of one micro-batch take, whole microseconds; all 0: not known.
struct ActionTimes {
  static constexpr uint64_t kLongestUs = 3'600'000'000;  // An hour: sums of a step fit 64 bits.

  uint64_t forward_us = 0;
  uint64_t backward_input_us = 0;
  uint64_t backward_weight_us = 0;
  bool is_known() const {
    return forward_us > 0 && backward_input_us > 0 && backward_weight_us > 0;
  }
  bool operator==(const ActionTimes&) const = default;
};

struct StagePlan {
  LayerRange layers;
  std::vector<ReplicaPlan> replicas;  // >= 1; the first one leads: it reports and saves.
  /// The first replica's. All others have it, too, but where pipeline replicas have own cuts.
  int32_t rank() const { return replicas.front().rank; }
  bool operator==(const StagePlan&) const = default;
};

/// What a group adds up.
enum class GroupScope {
  kStage,  // All gradients of a stage but those of a tied copy's pair.
  kTied,   // The gradient of the tied embedding, over the first and the last stage.
};

/// The replicas that add up gradients together. Groups of one are listed too: they need no
/// collective, but the commit waits for them like for any other.
struct ReductionGroup {
  GroupId id;
  GroupScope scope = GroupScope::kStage;
  int32_t stage = 0;               // kTied: 0.
  std::vector<ReplicaId> members;  // Ascending; the rank in the collective is the position.
  bool operator==(const ReductionGroup&) const = default;
};

inline constexpr char kSynchronousMode[] = "synchronous";
/// Replica c of every stage is of pipeline replica c, which trains apart from the others and meets
/// them in groups that a policy forms; `Plan::groups` are for nobody then. A pipeline replica may
/// have cuts of its own: then stages lie between all cuts of all, and a worker has several in a
/// row. It may have rows of its own, too, the same at every stage: so large are its claims.
inline constexpr char kLocalMode[] = "local";
/// A stage is then what `plans/tokens` calls a level: each of its replicas computes whole tokens of
/// as many rows as it has, whichever it is granted, so rows do not tile the micro-batch, which is a
/// token of the last level.
inline constexpr char kTokenMode[] = "tokens";

/// Layers -> stages -> replicas -> workers, the split of each micro-batch, and the schedule.
struct Plan {
  uint64_t generation = 0;
  ScheduleKind schedule = ScheduleKind::k1F1B;
  int64_t microbatch_count = 0;  // M
  int64_t microbatch_rows = 0;   // B
  bool recompute = false;        // Stashes hold inputs only; backwards run the forward again.
  /// How its work becomes committed steps: a training mode of `plans/modes/mode_list.cpp`.
  std::string mode = kSynchronousMode;
  std::vector<StagePlan> stages;
  std::vector<ReductionGroup> groups;
  Schedule
      actions;  // [ranks]; a rank has the same workers, in the same order, at each stage of it.
  bool operator==(const Plan&) const = default;
};

/// Checks all that a receiver relies on: ranges tile the model, rows tile the micro-batch, ids are
/// positions, groups cover every replica, a worker follows one list of actions, and the lists can
/// be executed. InvalidArgument with the first thing that is wrong.
absl::Status validate(const Plan& plan, int64_t layer_count, bool tied_head);
/// The same for a plan that is to be run: both ends of a tied embedding must be on unlike workers.
absl::Status validate(const Plan& plan, const ModelSpec& model);

/// The groups that every plan of these stages has; `tied_head`: the first and the last stage share
/// a parameter.
std::vector<ReductionGroup> reduction_groups(const std::vector<StagePlan>& stages, bool tied_head);
/// Gives the replicas their ids: positions, stage by stage.
void number_replicas(std::vector<StagePlan>& stages);

/// Rows as even as possible, earlier replicas get the rest.
RowRange even_rows(int64_t rows, int64_t index, int64_t count);

/// So many times a step passes a stage: micro-batches, or tokens.
int64_t passes_of_stage(const Plan& plan, int32_t stage);
/// The replicas of the last stage that say how a validation went.
std::vector<ReplicaId> validating_replicas(const Plan& plan);

/// Every stage has as many replicas, with the same rows: replica c of each is of pipeline replica
/// c.
bool has_pipelines(const Plan& plan);

const ReplicaPlan& replica_of(const Plan& plan, ReplicaId id);
int32_t stage_of(const Plan& plan, ReplicaId id);
int64_t replica_count(const Plan& plan);

/// Rows that travel from one replica to another one of a neighbouring stage: the overlap of their
/// row ranges. Both directions use the same routes.
struct Route {
  ReplicaId from;
  ReplicaId to;
  RowRange rows;  // In rows of the whole micro-batch.
  bool operator==(const Route&) const = default;
};
/// Routes from a replica to the replicas of the stage behind (`step` = +1) or before (-1) it, by
/// ascending row; empty at the ends of the pipeline.
std::vector<Route> routes_from(const Plan& plan, ReplicaId replica, int step);

/// The plan as text, one stage or group a line; `parse_plan` gives the same plan back.
std::string to_text(const Plan& plan);
absl::StatusOr<Plan> parse_plan(const std::string& text);

}  // namespace skein::plans
