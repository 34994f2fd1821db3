#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gpu/device.hpp"
#include "gpu/device_group.hpp"
#include "plans/collectives/device_group_cache.hpp"

namespace skein::actors {

/// The groups of a worker's device, kept from one plan to the next: `plans::DeviceGroupCache` with
/// what it speaks of. Thread-safe. To end a group takes long, so what is given up waits for a
/// thread that may.
class DeviceGroupStore {
 public:
  /// Each takes memory of the GPU, threads and connections.
  static constexpr size_t kGroupsMax = 4;

  std::vector<plans::FormedGroup> offer() const;
  /// Null if it is not there any more.
  std::shared_ptr<gpu::DeviceGroup> use(uint64_t number);
  void add(plans::FormedGroup group, std::shared_ptr<gpu::DeviceGroup> members,
           std::shared_ptr<gpu::Device> device);
  /// A user of the group ends. A broken group is not kept.
  void release(uint64_t number);
  /// What ran in it was stopped: it is kept for the next plan, for others to be made of it.
  void release_revoked(uint64_t number);
  /// It is broken, and known no more; the caller's handle is the last one.
  void end(uint64_t number);
  /// One that nobody uses goes to the caller, to make others of it; null if it is not there.
  std::shared_ptr<gpu::DeviceGroup> take(uint64_t number, plans::FormedGroup& group);
  /// To be ended by a thread that may. Null: nothing.
  void give_up(std::shared_ptr<gpu::DeviceGroup> members);
  /// Gives up what nobody uses of all others.
  void keep_only(const std::set<uint64_t>& numbers);
  /// How forming a new group went. Once it has failed so often in a row, `peer_failure` says why,
  /// and the worker does without: the same plan would fail for ever. A member's death in between is
  /// no such failure where the coordinator notices it first.
  static constexpr int kFailuresMax = 2;
  void on_formed(const absl::Status& status);
  std::string peer_failure() const;  // Empty: none.

  /// Ends what was given up.
  void end_given_up();

 private:
  void give_up(const std::vector<uint64_t>& numbers);

  mutable std::mutex mutex_;
  plans::DeviceGroupCache cache_{kGroupsMax};
  int failures_ = 0;  // In a row.
  std::string last_failure_;
  std::shared_ptr<gpu::Device> device_;  // Before the groups, which must not outlive it.
  std::map<uint64_t, std::shared_ptr<gpu::DeviceGroup>> groups_;
  std::vector<std::shared_ptr<gpu::DeviceGroup>> given_up_;
};

}  // namespace skein::actors
