#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/replica/shard_io.hpp"
#include "actors/replica/stage_replica.hpp"
#include "gpu/device.hpp"
#include "gpu/staging_pool.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/plan/plan.hpp"

namespace skein::actors {

/// State that leaves the models while they train: shards of checkpoints, and snapshots for other
/// workers or this one. The copies are work of the device, so that they run before the next step's
/// first action changes anything. Owned by one actor; touched only from its handlers.
class StateCopies {
 public:
  struct Options {
    plans::ModelSpec model;
    std::shared_ptr<gpu::Device> device;
    uint64_t generation = 0;
    ShardIo shards;
    std::map<int32_t, std::optional<std::string>> snapshot_addresses;  // As in ReplicaConfig.
    ShardListener shard_listener;
    SnapshotListener snapshot_listener;
  };
  StateCopies(Options options, const StageReplicas& replicas);

  gpu::Work save(const StageReplica& replica, uint64_t steps_done) const;
  /// No `run`: nobody keeps the stage's snapshots, or the one before is still being sent, so that
  /// slow links do not fill the memory.
  gpu::Work keep(const StageReplica& replica, uint64_t steps_done);

 private:
  const Options options_;
  std::map<int64_t, std::shared_ptr<gpu::StagingPool>> memory_;  // By layer.
  std::map<int32_t, std::weak_ptr<const void>> under_way_;       // By stage.
};

/// Copies the whole state of `model` into `copy`, whose `parameters` are set.
absl::Status snapshot(const gpu::StageModel& model, ShardRequest& copy);

}  // namespace skein::actors
