#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <caf/typed_actor.hpp>

#include "actors/collectives/group_io.hpp"
#include "actors/collectives/stage_link_io.hpp"
#include "actors/device/device.hpp"
#include "actors/device/device_share.hpp"
#include "actors/fail_point.hpp"
#include "actors/messages.hpp"
#include "actors/replica/replica_messages.hpp"
#include "actors/replica/shard_io.hpp"
#include "gpu/data/token_data.hpp"
#include "gpu/device_pool.hpp"
#include "net/codec/envelope.hpp"
#include "net/control/control_link.hpp"
#include "net/data/data_plane.hpp"
#include "plans/base/sweeps.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/modes/mode_list.hpp"
#include "plans/plan/plan_part.hpp"

namespace skein::actors {

/// Who owns a Replica.
using ReplicaListener =
    caf::typed_actor<caf::reacts_to<WorkerFault>, caf::reacts_to<ReplicasRetired>,
                     caf::reacts_to<SnapshotTaken>, caf::reacts_to<ReplicaActivity>>;

struct ReplicaConfig {
  plans::JobSpec job;
  plans::PlanPart plan;
  uint64_t first_step = 0;
  std::vector<PreparedReplica> replicas;  // By ascending stage.
  std::shared_ptr<const gpu::TokenData> data;
  std::shared_ptr<gpu::Device> device;  // For memory; work goes to:
  Device work;
  std::shared_ptr<DeviceShare> share;  // Null: no other job uses the device.
  ShardIo shards;
  std::map<plans::GroupId, GroupIo> groups;
  std::set<plans::GroupId> device_groups;  // Those that add up in the device's memory.
  /// By the stage in front: of the neighbouring stages whose devices pass on activations.
  std::map<int32_t, StageLinkIo> links;
  std::map<int32_t, std::shared_ptr<gpu::DevicePool>> link_memory;  // By the same stages.
  std::shared_ptr<net::DataPlane> plane;
  std::map<plans::WorkerId, std::string> addresses;  // Data planes of those it sends to.
  std::shared_ptr<net::ControlLink> link;            // To the coordinator.
  net::EnvelopeHead head;
  /// Where the snapshots of each stage go that somebody keeps: that worker's data plane; none: they
  /// are kept here.
  std::map<int32_t, std::optional<std::string>> snapshot_addresses;
  ReplicaListener listener;
  const plans::ModeList* modes = nullptr;  // Null: those of the product.
  bool checks_invariants = plans::kSweeps;
  FailPointHandle fail_point;  // Set by tests; else null.
};

}  // namespace skein::actors
