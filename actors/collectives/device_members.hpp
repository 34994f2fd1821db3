#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "actors/collectives/device_group_store.hpp"
#include "actors/collectives/formation_round.hpp"
#include "gpu/device.hpp"
#include "net/reduce/gradient_group.hpp"
#include "plans/base/ids.hpp"

namespace skein::actors {

struct DeviceMembersOptions {
  std::string name;                    // The same on all members, under that of the round.
  double appear_timeout_seconds = 60;  // Names the id of a new group.
  double form_timeout_seconds = 60;
  double operation_timeout_seconds = 60;
  plans::GroupId id;
  uint64_t number = 0;  // Never given out twice, and the same on all members.
  plans::WorkerId self;
  std::shared_ptr<gpu::Device> device;
  std::shared_ptr<DeviceGroupStore> group_store;
  std::shared_ptr<FormationRound> round;        // The plan's.
  std::function<void(const std::string&)> say;  // One line, for the log.
};

/// A worker's part in one group of devices. `form` and `run` block, one call at a time; `abort` may
/// be called by any thread.
///
/// A group that an earlier plan has left whole is used again, or others are made of it. One that is
/// aborted while an operation runs is revoked and kept for that, where the library can; else it is
/// broken, here and, as that operation cannot end, for all.
class DeviceMembers {
 public:
  DeviceMembers(DeviceMembersOptions options, std::shared_ptr<net::RendezvousStore> store)
      : options_(std::move(options)), store_(std::move(store)) {}
  ~DeviceMembers() { leave(); }

  /// As the round has decided. Never InvalidArgument: that would end the run.
  absl::Status form(FormationRound::Outcome outcome);
  /// Queues an operation by `queue` and waits for its end. Behind an error nothing of it runs.
  absl::Status run(const std::function<absl::Status(gpu::DeviceGroup&)>& queue);
  void abort();

 private:
  void leave();
  absl::Status form_from(FormationRound::Outcome outcome);
  absl::StatusOr<std::unique_ptr<gpu::DeviceGroup>> make_from(
      const FormationRound::Outcome& outcome);
  absl::Status form_anew(const plans::DeviceGroupPart& group);
  absl::Status keep(const plans::DeviceGroupPart& group, std::unique_ptr<gpu::DeviceGroup> formed);
  void adopt(uint64_t number, std::shared_ptr<gpu::DeviceGroup> members);
  gpu::DeviceGroup::Options device_options() const;
  bool can_revoke() const;
  /// False once the group is aborted. An abort from now on until `end_call` ends what runs.
  bool begin_call();
  /// False if it was aborted meanwhile.
  bool end_call();
  void end_operation(bool is_done);
  absl::Status aborted() const;

  const DeviceMembersOptions options_;
  const std::shared_ptr<net::RendezvousStore> store_;
  std::mutex mutex_;
  uint64_t number_ = 0;
  std::shared_ptr<gpu::DeviceGroup> members_;
  std::shared_ptr<gpu::AbortSignal> signal_ = std::make_shared<gpu::AbortSignal>();
  bool is_calling_ = false;
  bool is_aborted_ = false;
};

}  // namespace skein::actors
