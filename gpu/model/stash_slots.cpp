#include "gpu/model/stash_slots.hpp"

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"

namespace skein::gpu {

absl::Status StashSlots::allocate(int32_t count, int64_t bytes, int64_t statistics_bytes,
                                  Device& device) {
  slots_.resize(static_cast<size_t>(count));
  for (StashSlot& slot : slots_) {
    SKEIN_ASSIGN_OR_RETURN(slot.memory, device.allocate(bytes));
    SKEIN_ASSIGN_OR_RETURN(slot.statistics, device.allocate(statistics_bytes));
    free_.push_back(&slot);
  }
  return absl::OkStatus();
}

absl::StatusOr<StashSlot*> StashSlots::take(int32_t microbatch) {
  if (active_.contains(microbatch) || free_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no stash for micro-batch ", microbatch, ": ", active_.size(), " of ",
                     slots_.size(), " are held; the schedule is not the planned one"));
  }
  StashSlot* slot = free_.back();
  free_.pop_back();
  slot->input_done = false;
  slot->old_version.reset();
  active_[microbatch] = slot;
  return slot;
}

absl::StatusOr<StashSlot*> StashSlots::find(int32_t microbatch) {
  auto found = active_.find(microbatch);
  if (found != active_.end()) return found->second;
  return absl::FailedPreconditionError(
      absl::StrCat("micro-batch ", microbatch, " has a backward before its forward"));
}

void StashSlots::release(int32_t microbatch) {
  auto node = active_.extract(microbatch);
  free_.push_back(node.mapped());
}

void StashSlots::release_all() {
  while (!active_.empty()) release(active_.begin()->first);
}

std::vector<StashSlot*> StashSlots::held() const {
  std::vector<StashSlot*> held;
  for (const auto& [microbatch, slot] : active_) held.push_back(slot);
  return held;
}

}  // namespace skein::gpu
