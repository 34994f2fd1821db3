#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/collectives/formation_round.hpp"
#include "actors/collectives/group_io.hpp"
#include "actors/collectives/stage_link.hpp"
#include "actors/collectives/stage_link_io.hpp"
#include "actors/device/device.hpp"
#include "actors/device/device_share.hpp"
#include "actors/replica/shard_io.hpp"
#include "actors/worker/text_stage_io.hpp"
#include "gpu/device.hpp"
#include "gpu/device_pool.hpp"
#include "net/reduce/gradient_group.hpp"
#include "plans/base/ids.hpp"
#include "plans/base/sweeps.hpp"
#include "plans/collectives/device_groups.hpp"
#include "plans/job/job_spec.hpp"
#include "plans/modes/mode_list.hpp"

namespace skein::actors {

/// A group and how to make it fail at once, from any thread.
struct GroupParts {
  GroupIo io;
  std::function<void()> abort;
};

/// The I/O actor of a stage link, and how to make it fail at once, from any thread.
struct StageLinkParts {
  StageLinkIo io;
  std::function<void()> abort;
};

/// A group that is to be made.
struct GroupRequest {
  net::GradientGroup::Options options;
  plans::WorkerId self;
  uint64_t generation = 0;
  std::string backend;            // comm.backend; "gloo" where no devices can form groups.
  plans::WorkerId device_leader;  // As `plans::PlanPart`, ...
  std::vector<plans::DeviceGroupPart> device_groups;  // ... where they can.
  std::shared_ptr<gpu::Device> device;
  LinkTensors tensors;                      // A link's.
  std::shared_ptr<gpu::DevicePool> memory;  // A link's, for these; null: none was taken.
};

/// How a worker gets what depends on the machine it runs on.
struct WorkerParts {
  /// For a job, whose run has this id; its `device` is what the worker makes of it. An error ends
  /// the worker.
  std::function<absl::StatusOr<WorkerDevice>(const plans::JobSpec&, const std::string& run)>
      make_device;
  /// Spawns the actor that runs the device's work.
  std::function<Device(std::shared_ptr<gpu::Device>)> spawn_device;
  std::function<absl::StatusOr<GroupParts>(plans::GroupId, const GroupRequest&)> make_group;
  /// Null: devices pass on nothing without the hosts. None: this worker's does not.
  std::function<std::optional<StageLinkParts>(plans::GroupId, const GroupRequest&)> make_stage_link;
  std::function<ShardIo(ShardIoConfig)> make_shard_io;
  std::function<TextStageIo()> make_text_stage;  // Null: no text is drawn.
  const plans::ModeList* modes = nullptr;        // Training modes; null: those of the product.
  /// State machines sweep their invariants after every event.
  bool checks_invariants = plans::kSweeps;
};

}  // namespace skein::actors
