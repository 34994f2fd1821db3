#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "actors/collectives/device_members.hpp"
#include "gpu/device_pool.hpp"
#include "plans/base/ids.hpp"
#include "plans/collectives/communication_order.hpp"
#include "plans/plan/plan_part.hpp"

namespace skein::actors {

/// What one end of a link has on its device of tensors on their way.
struct LinkTensors {
  int64_t numbers = 0;  // A tensor has so many.
  int64_t count = 0;    // There are so many at once, at most.
  /// The most that they take: half of it where all members have bfloat16, which they tell each
  /// other.
  int64_t bytes() const { return count * gpu::float_bytes(numbers); }
  bool operator==(const LinkTensors&) const = default;
};
/// `self` is on one side of the link behind stage `front`. `row_numbers`: T * C. Takes time
/// for each micro-batch, as making the `places` does.
LinkTensors tensors_of_link(const plans::PlanPart& part, const plans::CommunicationPlaces& places,
                            plans::WorkerId self, int32_t front, int64_t row_numbers);

/// The devices of two neighbouring stages, which pass on activations and their gradients without
/// the hosts, where all of them can; the plan's `FormationRound` decides. They pass on bfloat16
/// where all of them compute with such, so that nothing is lost, and else float32. All but `abort`
/// block, one call at a time.
class StageLink {
 public:
  /// `memory`: taken for the tensors before, where they were counted on to have the type of this
  /// device's activations. Null: there was none then.
  StageLink(DeviceMembersOptions options, const LinkTensors& tensors,
            std::shared_ptr<gpu::DevicePool> memory, std::shared_ptr<net::RendezvousStore> store)
      : options_(options),
        tensors_(tensors),
        memory_(std::move(memory)),
        members_(std::move(options), std::move(store)) {}

  /// Waits until every member has called it. False: they go by way of the hosts, which is said.
  /// ResourceExhausted if the device has no memory for its tensors.
  absl::StatusOr<bool> connect();
  /// For what is sent and received, once; null: they go by way of the hosts.
  std::shared_ptr<gpu::DevicePool> take_memory() { return std::exchange(memory_, nullptr); }
  /// Device memory, which is complete. Each waits for the other end's call. Behind an error nothing
  /// of it runs. Unavailable or DeadlineExceeded if a member is gone.
  absl::Status send(gpu::ConstNumbers values, int64_t count, plans::WorkerId to);
  absl::Status receive(gpu::Numbers values, int64_t count, plans::WorkerId from);
  /// Makes a running and every later call fail at once. Any thread.
  void abort();

 private:
  absl::StatusOr<int32_t> rank_of(plans::WorkerId worker) const;

  const DeviceMembersOptions options_;
  const LinkTensors tensors_;
  std::shared_ptr<gpu::DevicePool> memory_;  // Until it is taken.
  DeviceMembers members_;
  std::map<plans::WorkerId, uint32_t> ranks_;  // In the devices' group: of its other end.
};

}  // namespace skein::actors
