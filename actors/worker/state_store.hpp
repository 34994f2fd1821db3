#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "actors/messages.hpp"
#include "actors/replica/replica_messages.hpp"
#include "actors/worker/layer_state.hpp"
#include "plans/elastic/restore.hpp"
#include "plans/plan/plan_part.hpp"

namespace skein::actors {

/// The state that a worker could give to others: models that do not train any more, and snapshots
/// of its own and of other workers' stages. Owned by one actor; touched only from its handlers.
class StateStore {
 public:
  const std::vector<HeldState>& held() const { return held_; }
  std::vector<plans::InventoryItem> inventory() const;

  /// Models that have stopped, with the state after `retired.steps_done` steps, the last of which
  /// was committed in `generation`.
  void keep_models(const ReplicasRetired& retired, uint64_t generation);
  /// A whole snapshot, whose last step was committed in `generation`. It takes the place of one of
  /// the same state.
  void keep(const HeldState& snapshot, uint64_t generation);
  /// Layers that came for a plan that never started: who sent them may be gone. They are needed
  /// until a plan starts.
  void keep_fetched(const std::vector<HeldState>& layers, uint64_t generation);
  /// A layer of a snapshot of a stage. Returns the snapshot when it is whole. A damaged layer is
  /// dropped: its snapshot never becomes whole, and an older one is used.
  std::optional<SnapshotTaken> on_layer(const plans::ModelSpec& model, const plans::PlanPart& plan,
                                        const StateArrived& arrived);

  /// The models of the same state are let go for these copies, which are kept as long.
  void replace_models(const std::vector<HeldState>& copies);
  /// Copies that have lost a bit are not offered again: other sources, older ones perhaps, are
  /// used.
  void drop_damaged(const plans::ModelSpec& model);
  /// State after so many steps, but of a past that was rolled back while we were away.
  void drop_rolled_back(uint64_t step, uint64_t generation);
  /// Snapshots of fewer steps are not needed any more.
  void drop_before(uint64_t step);
  /// What has come of a snapshot that will not become whole.
  void drop_partial() { arriving_.clear(); }
  /// A plan has started at `first_step`: the state of the one before is not needed any more, nor
  /// are snapshots of a future that did not come.
  void begin_plan(uint64_t first_step);

 private:
  /// So many snapshots of the stage are partly there.
  bool has_arriving(int32_t stage, int64_t count) const;

  std::vector<HeldState> held_;
  /// Snapshots of which some layers have come, by stage and step; none has all of them.
  std::map<std::pair<int32_t, uint64_t>, HeldState> arriving_;
};

}  // namespace skein::actors
