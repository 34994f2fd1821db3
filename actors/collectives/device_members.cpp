#include "actors/collectives/device_members.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"

namespace skein::actors {
namespace {

/// A shrink is between members that are all here and waiting: it takes milliseconds, or one of them
/// has met an error that the others do not know of. A new id is the way on then.
constexpr double kShrinkTimeoutSeconds = 5;

/// Not bad input, whatever it is called: that would end the run.
absl::Status peer_failure(const absl::Status& why) { return absl::UnavailableError(why.message()); }

}  // namespace

absl::Status DeviceMembers::form(FormationRound::Outcome outcome) {
  const plans::Formation& formation = outcome.decision.formation;
  switch (formation.kind) {
    case plans::FormationKind::kCached:
      adopt(formation.parent, std::move(outcome.from));
      return absl::OkStatus();
    case plans::FormationKind::kNewId:
      return form_anew(outcome.group);
    case plans::FormationKind::kShrink:
    case plans::FormationKind::kSplit:
      break;
  }
  return form_from(std::move(outcome));
}

absl::Status DeviceMembers::run(const std::function<absl::Status(gpu::DeviceGroup&)>& queue) {
  if (!begin_call()) return aborted();
  absl::Status status = queue(*members_);
  if (status.ok()) status = members_->wait();
  end_operation(status.ok());
  return status;
}

void DeviceMembers::abort() {
  store_->cancel_prefix(options_.name + "/");
  std::lock_guard lock(mutex_);
  is_aborted_ = true;
  if (is_calling_) return signal_->raise();
  leave();  // Whole, for the next plan.
}

void DeviceMembers::leave() {
  if (members_) options_.group_store->release(number_);
  members_.reset();
}

absl::Status DeviceMembers::form_from(FormationRound::Outcome outcome) {
  if (!begin_call()) return aborted();
  auto formed = make_from(outcome);
  outcome.from.reset();  // Every member has what it needs of it, or it is broken.
  if (!end_call()) return aborted();
  if (!formed.ok()) return peer_failure(formed.status());
  const bool is_split = outcome.decision.formation.kind == plans::FormationKind::kSplit;
  options_.say(absl::StrCat("the GPUs of ", options_.name, " have ", is_split ? "split" : "shrunk",
                            " their group of ", outcome.parent.rank_count, " members to one of ",
                            outcome.group.rank_count));
  return keep(outcome.group, *std::move(formed));
}

absl::StatusOr<std::unique_ptr<gpu::DeviceGroup>> DeviceMembers::make_from(
    const FormationRound::Outcome& outcome) {
  gpu::DeviceGroup& from = *outcome.from;
  const plans::Formation& formation = outcome.decision.formation;
  if (formation.kind == plans::FormationKind::kSplit) {
    return from.split(static_cast<int32_t>(options_.id.value), device_options());
  }
  std::vector<int32_t> left;
  for (const plans::RankRange& range : formation.left) {
    for (uint32_t rank = range.begin; rank < range.end && rank < outcome.parent.rank_count;
         ++rank) {
      left.push_back(static_cast<int32_t>(rank));
    }
  }
  if (left.size() + outcome.group.rank_count != outcome.parent.rank_count) {
    return absl::UnavailableError(absl::StrCat(left.size(), " of ", outcome.parent.rank_count,
                                               " members leave a group, which leaves no ",
                                               outcome.group.rank_count));
  }
  if (formation.revokes && !outcome.parent.is_revoked) {
    SKEIN_RETURN_IF_ERROR(from.revoke());
  }
  gpu::DeviceGroup::Options options = device_options();
  options.form_timeout_seconds = std::min(options.form_timeout_seconds, kShrinkTimeoutSeconds);
  return from.shrink(left, gpu::DeviceGroup::Shrink::kHealthy, options);
}

absl::Status DeviceMembers::form_anew(const plans::DeviceGroupPart& group) {
  const uint32_t rank = *group.rank;
  const std::string id_key = options_.name + "/id";
  SKEIN_ASSIGN_OR_RETURN(gpu::DeviceGroups * groups, options_.device->groups());
  if (rank == 0) {
    const absl::StatusOr<std::string> made = groups->make_id();
    if (!made.ok()) {
      options_.group_store->on_formed(made.status());
      return made.status();
    }
    put_for_members(*store_, options_.self, id_key, *made, group.members);
  }
  SKEIN_ASSIGN_OR_RETURN(const std::vector<char> id,
                         store_->wait(id_key, options_.appear_timeout_seconds));
  if (!begin_call()) return aborted();
  absl::StatusOr<std::unique_ptr<gpu::DeviceGroup>> formed =
      groups->form(std::string(id.begin(), id.end()), static_cast<int32_t>(rank),
                   static_cast<int32_t>(group.rank_count), device_options());
  if (!end_call()) return aborted();
  options_.group_store->on_formed(formed.status());
  if (!formed.ok()) return peer_failure(formed.status());
  return keep(group, *std::move(formed));
}

gpu::DeviceGroup::Options DeviceMembers::device_options() const {
  gpu::DeviceGroup::Options options;
  options.name = options_.name;
  options.form_timeout_seconds = options_.form_timeout_seconds;
  options.operation_timeout_seconds = options_.operation_timeout_seconds;
  // Revoked at once, see `end_operation`.
  if (can_revoke()) options.on_failure = gpu::DeviceGroup::OnFailure::kKeep;
  options.abort = signal_;
  return options;
}

bool DeviceMembers::can_revoke() const {
  const absl::StatusOr<gpu::DeviceGroups*> groups = options_.device->groups();
  return groups.ok() && (*groups)->info().can_revoke;
}

absl::Status DeviceMembers::keep(const plans::DeviceGroupPart& group,
                                 std::unique_ptr<gpu::DeviceGroup> formed) {
  if (formed == nullptr) {
    return absl::UnavailableError(absl::StrCat(options_.name, " has no group here"));
  }
  std::shared_ptr<gpu::DeviceGroup> shared = std::move(formed);
  options_.group_store->add({options_.number, *group.rank, group.rank_count, 0}, shared,
                            options_.device);
  adopt(options_.number, std::move(shared));
  return absl::OkStatus();
}

void DeviceMembers::adopt(uint64_t number, std::shared_ptr<gpu::DeviceGroup> members) {
  std::lock_guard lock(mutex_);
  number_ = number;
  members_ = std::move(members);
  signal_ = members_->abort_signal();
  if (is_aborted_) leave();
}

bool DeviceMembers::begin_call() {
  std::lock_guard lock(mutex_);
  is_calling_ = !is_aborted_;
  return is_calling_;
}

bool DeviceMembers::end_call() {
  std::lock_guard lock(mutex_);
  is_calling_ = false;
  return !is_aborted_;
}

/// What still runs in the group must end before anybody touches the values again.
void DeviceMembers::end_operation(bool is_done) {
  {
    std::lock_guard lock(mutex_);
    if (is_done && !is_aborted_) {
      is_calling_ = false;
      return;
    }
  }
  if (can_revoke() && members_->revoke().ok()) {
    options_.group_store->release_revoked(number_);
  } else {
    options_.group_store->end(number_);
  }
  members_.reset();  // Broken: ends here, which takes long.
  std::lock_guard lock(mutex_);
  is_calling_ = false;
  is_aborted_ = true;
}

absl::Status DeviceMembers::aborted() const {
  return absl::UnavailableError(absl::StrCat(options_.name, " was aborted"));
}

}  // namespace skein::actors
