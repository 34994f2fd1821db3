#include "actors/collectives/stage_link.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"
#include "plans/collectives/link_tensors.hpp"

namespace skein::actors {
namespace {

absl::Status as_internal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) ? absl::InternalError(status.message()) : status;
}

}  // namespace

LinkTensors tensors_of_link(const plans::Plan& plan, const plans::CommunicationPlaces& places,
                            plans::WorkerId self, int32_t front, int64_t row_numbers) {
  for (int32_t stage : {front, front + 1}) {
    for (const plans::ReplicaPlan& own : plan.stages[static_cast<size_t>(stage)].replicas) {
      if (own.worker != self) continue;
      return {own.rows.count * row_numbers, plans::link_tensors_max(plan, places, front, own.id)};
    }
  }
  return {};
}

absl::StatusOr<bool> StageLink::connect() {
  options_.group_store->end_given_up();
  options_.round->tell();
  SKEIN_ASSIGN_OR_RETURN(FormationRound::Outcome outcome, options_.round->decide(options_.id));
  if (!outcome.path.on_device) {
    if (!outcome.path.reason.empty()) {
      options_.say(absl::StrCat("activations of ", options_.name,
                                " go by way of the hosts: ", outcome.path.reason));
    }
    memory_.reset();
    return false;
  }
  workers_ = outcome.members;
  const gpu::DevicePool::Tensors tensors{tensors_.numbers, outcome.activations, tensors_.count};
  if (!memory_ || memory_->tensors() != tensors) {
    memory_.reset();  // The others may have float32 only.
    SKEIN_ASSIGN_OR_RETURN(memory_, gpu::DevicePool::create(options_.device, tensors));
  }
  SKEIN_RETURN_IF_ERROR(members_.form(std::move(outcome)));
  options_.say(absl::StrCat("activations of ", options_.name, " go from device to device"));
  return true;
}

absl::Status StageLink::send(gpu::ConstNumbers values, int64_t count, plans::WorkerId to) {
  SKEIN_ASSIGN_OR_RETURN(const int32_t rank, rank_of(to));
  const gpu::DeviceGroup::Sent sent{values, count, rank};
  return as_internal(members_.run([&](gpu::DeviceGroup& group) {
    return group.exchange({&sent, 1}, {}, gpu::DeviceGroup::Start::kNow);
  }));
}

absl::Status StageLink::receive(gpu::Numbers values, int64_t count, plans::WorkerId from) {
  SKEIN_ASSIGN_OR_RETURN(const int32_t rank, rank_of(from));
  const gpu::DeviceGroup::Received received{values, count, rank};
  return as_internal(members_.run([&](gpu::DeviceGroup& group) {
    return group.exchange({}, {&received, 1}, gpu::DeviceGroup::Start::kNow);
  }));
}

void StageLink::abort() {
  options_.round->abort();
  members_.abort();
}

absl::StatusOr<int32_t> StageLink::rank_of(plans::WorkerId worker) const {
  const auto found = std::find(workers_.begin(), workers_.end(), worker);
  if (found != workers_.end()) return static_cast<int32_t>(found - workers_.begin());
  return absl::InternalError(
      absl::StrCat("worker ", worker.value, " is no member of ", options_.name));
}

}  // namespace skein::actors
