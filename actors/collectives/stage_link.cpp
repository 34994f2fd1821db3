#include "actors/collectives/stage_link.hpp"

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

LinkTensors tensors_of_link(const plans::PlanPart& part, const plans::CommunicationPlaces& places,
                            plans::WorkerId self, int32_t front, int64_t row_numbers) {
  for (const plans::ReplicaPlan& own : plans::hosted_by(part, self)) {
    const int32_t stage = plans::stage_of(part, own.id);
    if (stage != front && stage != front + 1) continue;
    return {own.rows.count * row_numbers, plans::link_tensors_max(part, places, front, own.id)};
  }
  return {};
}

absl::StatusOr<bool> StageLink::connect() {
  options_.group_store->end_given_up();
  options_.round->tell();
  SKEIN_ASSIGN_OR_RETURN(FormationRound::Outcome outcome, options_.round->decide(options_.id));
  const GradientPath& path = outcome.decision.path;
  if (!path.on_device) {
    if (!path.reason.empty()) {
      options_.say(
          absl::StrCat("activations of ", options_.name, " go by way of the hosts: ", path.reason));
    }
    memory_.reset();
    return false;
  }
  ranks_ = outcome.group.neighbours;
  const gpu::DevicePool::Tensors tensors{tensors_.numbers, outcome.decision.activations,
                                         tensors_.count};
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
  const auto found = ranks_.find(worker);
  if (found != ranks_.end()) return static_cast<int32_t>(found->second);
  return absl::InternalError(
      absl::StrCat("worker ", worker.value, " is no member of ", options_.name));
}

}  // namespace skein::actors
