#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "plans/sync/group_scheduler.hpp"
#include "plans/sync/pipeline_layout.hpp"

namespace skein::plans {

/// Where each replica is: computing, waiting for a group, or in one. The ground of policies whose
/// pipeline replicas count their own steps: it drops repeated and late signals, numbers the groups,
/// and forgets pipeline replicas that have died. Not thread-safe.
class ReplicaTable {
 public:
  struct Ended {
    uint32_t stage = 0;
    std::vector<uint32_t> pipelines;  // Its members that are still alive, ascending.
  };

  /// Nobody is there.
  explicit ReplicaTable(const PipelineLayout& layout);

  const PipelineLayout& layout() const { return layout_; }
  bool is_live(uint32_t pipeline) const { return live_[pipeline]; }
  uint32_t live_count() const { return live_count_; }

  /// False: the pipeline replica is there already, is gone already, or is not one of the layout.
  bool change(const MembershipChange& change);

  /// The stage at which a replica waits from now on. None if the signal is repeated, late, or
  /// early: a member of a group may get through, and through its next step, before the outcome is
  /// known; then it waits from the outcome on.
  std::optional<uint32_t> accept(const ReadySignal& signal);

  /// A live pipeline replica's.
  bool is_waiting(uint32_t stage, uint32_t pipeline) const;
  /// Its steps, since it joined, whose groups have ended.
  uint64_t steps(uint32_t stage, uint32_t pipeline) const { return at(stage, pipeline).steps; }

  /// Starts a group of waiting replicas, `pipelines` ascending. kLocal has ended at once.
  GroupStart start(uint32_t stage, const std::vector<uint32_t>& pipelines, Average average,
                   double weight);
  /// None: not under way, or nobody of it is left.
  std::optional<Ended> end(uint64_t number);

 private:
  enum class Place { kComputing, kWaiting, kInGroup };
  struct Replica {
    Place place = Place::kComputing;
    uint64_t group = 0;      // kInGroup: its number.
    uint64_t step = 0;       // The step of its last signal.
    uint64_t step_next = 0;  // The first one that is news.
    bool is_early = false;   // kInGroup: ready for the next one already.
    uint64_t steps = 0;
  };

  const Replica& at(uint32_t stage, uint32_t pipeline) const {
    return replicas_[layout_.replica(stage, pipeline).value];
  }
  Replica& at(uint32_t stage, uint32_t pipeline) {
    return replicas_[layout_.replica(stage, pipeline).value];
  }
  void leave_group(uint32_t stage, uint32_t pipeline);

  PipelineLayout layout_;
  std::vector<bool> live_;  // [pipeline replicas]
  uint32_t live_count_ = 0;
  std::vector<Replica> replicas_;
  std::map<uint64_t, Ended> under_way_;  // By number.
  uint64_t started_count_ = 0;
};

}  // namespace skein::plans
