#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/collectives/reducer_kind.hpp"
#include "plans/plan/plan.hpp"

namespace skein::plans {

/// What the devices of a group do together.
enum class DeviceUse { kSum, kOtherReducer, kActivations };
inline constexpr int kDeviceUses = 3;

/// A group that the devices of a plan may form: the members of a reduction, or those of two
/// neighbouring stages on unlike workers, which pass on activations and their gradients.
struct WantedGroup {
  GroupId id;  // A reduction's own; those of neighbouring stages are behind all of these.
  DeviceUse use = DeviceUse::kSum;
  int32_t front = 0;              // kActivations: the stage in front.
  std::vector<WorkerId> members;  // >= 2, unlike, by replica.
  bool operator==(const WantedGroup&) const = default;
};

/// By ascending id. `reducer` is that of stages; tied gradients are always summed.
std::vector<WantedGroup> wanted_groups(const Plan& plan, ReducerKind reducer);

/// What a worker has to know of one of them.
struct DeviceGroupPart {
  GroupId id;
  DeviceUse use = DeviceUse::kSum;
  int32_t front = 0;  // As above.
  std::optional<uint32_t>
      rank;                 // The worker's on the devices: as its number ascends; or no member.
  uint32_t rank_count = 0;  // Members.
  std::map<WorkerId, uint32_t> neighbours;  // kActivations: ranks of those it exchanges rows with.
  /// By replica. Only who decides for all, and the member of rank 0, who tells the others the id of
  /// a new group, have to know everybody.
  std::vector<WorkerId> members;
  bool operator==(const DeviceGroupPart&) const = default;
};

}  // namespace skein::plans
