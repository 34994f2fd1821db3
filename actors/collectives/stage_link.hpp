#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/collectives/device_members.hpp"
#include "plans/base/ids.hpp"

namespace skein::actors {

/// The devices of two neighbouring stages, which pass on activations and their gradients without
/// the hosts, where all of them can; the plan's `FormationRound` decides. All but `abort` block,
/// one call at a time.
class StageLink {
 public:
  StageLink(DeviceMembersOptions options, std::shared_ptr<net::RendezvousStore> store)
      : options_(options), members_(std::move(options), std::move(store)) {}

  /// Waits until every member has called it. False: they go by way of the hosts, which is said.
  absl::StatusOr<bool> connect();
  /// Device memory, which is complete. Each waits for the other end's call. Behind an error nothing
  /// of it runs. Unavailable or DeadlineExceeded if a member is gone.
  absl::Status send(std::span<const float> values, plans::WorkerId to);
  absl::Status receive(std::span<float> values, plans::WorkerId from);
  /// Makes a running and every later call fail at once. Any thread.
  void abort();

 private:
  absl::StatusOr<int32_t> rank_of(plans::WorkerId worker) const;

  const DeviceMembersOptions options_;
  DeviceMembers members_;
  std::vector<plans::WorkerId> workers_;  // By their rank in the devices' group.
};

}  // namespace skein::actors
