#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "actors/collectives/group_io.hpp"
#include "actors/replica/device_operations.hpp"
#include "actors/replica/stage_replica.hpp"
#include "gpu/model/stage_model.hpp"
#include "plans/plan/plan_part.hpp"
#include "plans/worker/program_commands.hpp"

namespace skein::actors {

/// The gradients that the replicas here add up with those of other workers, bucket by bucket.
/// Groups that add up in the device's memory take turns; each other one has a thread and
/// connections of its own, and waits for no other. Owned by one actor; touched only from its
/// handlers.
class Reductions {
 public:
  struct Options {
    plans::PlanPart plan;
    std::set<plans::GroupId> device_groups;  // Groups that add up in the device's memory.
    /// Asks the group's GroupIo to add up; `on_done` follows.
    std::function<void(plans::GroupId, const ReductionRequest&)> reduce;
    std::function<uint64_t()> now_us;
  };
  Reductions(Options options, const StageReplicas& replicas, DeviceOperations& operations);

  /// A step's operations on the device will come.
  void expect(uint64_t step);
  /// The bucket is complete: its reduction begins now, or when its turn has come.
  void start(const plans::RunReduction& command);
  /// The turn of a reduction on the device has come. False: the operation is not a reduction.
  bool begin(const plans::CollectiveKey& key);
  /// A reduction has ended, well or not; returns when it began. None: it does not run here.
  std::optional<uint64_t> on_end(const ReductionDone& done);
  /// The next operation on the device may begin.
  void pass_turn(const ReductionDone& done);

  /// None runs.
  bool is_idle() const { return running_.empty(); }
  /// What of a replica's gradients crosses by way of the host: what a group adds up there.
  gpu::GradientParts host_parts(const StageReplica& replica) const;

 private:
  struct Running {
    uint64_t step = 0;
    int32_t bucket = 0;
    uint64_t start_us = 0;
  };

  plans::CollectiveKey key_of(plans::GroupId group, uint64_t step, int32_t bucket) const;
  void reduce(const plans::RunReduction& command);

  const Options options_;
  const StageReplicas& replicas_;
  DeviceOperations& operations_;
  std::map<plans::CollectiveKey, plans::RunReduction> ready_;  // On the device: wait for a turn.
  std::map<plans::GroupId, Running> running_;                  // At most one of each group.
};

}  // namespace skein::actors
