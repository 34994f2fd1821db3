#include "actors/collectives/formation_round.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plans/base/status_macros.hpp"

namespace skein::actors {

FormationRound::FormationRound(Options options, std::shared_ptr<net::RendezvousStore> store)
    : options_(std::move(options)), store_(std::move(store)) {}

FormationRound::~FormationRound() {
  for (auto& [group, outcome] : outcomes_) {
    if (!outcome.ok() || outcome->from == nullptr) continue;
    if (outcome->formation.kind == plans::FormationKind::kCached) {
      options_.group_store->release(outcome->formation.parent);
    } else {
      options_.group_store->give_up(std::move(outcome->from));
    }
  }
}

PathEntry FormationRound::tell() {
  std::lock_guard lock(tell_mutex_);
  if (has_told_) return own_;
  own_ = own_entry();
  has_told_ = true;
  const std::string text = to_text(own_);
  store_->put(key_of(options_.self), {text.begin(), text.end()}, {});  // All groups are decided on.
  return own_;
}

absl::StatusOr<FormationRound::Outcome> FormationRound::decide(plans::GroupId group) {
  std::lock_guard lock(decide_mutex_);
  if (!is_settled_) {
    heard_ = hear();
    if (heard_.ok()) settle();
    is_settled_ = true;
  }
  SKEIN_RETURN_IF_ERROR(heard_);
  auto outcome = outcomes_.extract(group);
  if (!outcome.empty()) return std::move(outcome.mapped());
  return absl::InternalError(absl::StrCat("group ", group.value, " is not one of ", options_.name));
}

void FormationRound::abort() { store_->cancel_prefix(options_.name + "/"); }

PathEntry FormationRound::own_entry() const {
  PathEntry entry;
  entry.is_gpu = !options_.device->info().is_host_memory;
  if (entry.is_gpu) entry.activations = options_.device->info().activations;
  const absl::StatusOr<gpu::DeviceGroups*> groups = options_.device->groups();
  if (!groups.ok()) {
    entry.detail = std::string(groups.status().message());
    return entry;
  }
  entry.detail = options_.group_store->peer_failure();
  if (!entry.detail.empty()) return entry;
  const gpu::DeviceGroups::Info& info = (*groups)->info();
  entry.library = info.library;
  entry.detail = info.place;
  entry.offer = {options_.group_store->offer(), info.can_shrink, info.can_split, info.can_revoke};
  return entry;
}

std::string FormationRound::key_of(plans::WorkerId worker) const {
  return absl::StrCat(options_.name, "/device-", worker.value);
}

absl::Status FormationRound::hear() {
  for (const auto& [group, wanted] : options_.wanted) {
    for (plans::WorkerId member : wanted.members) {
      if (entries_.contains(member)) continue;
      SKEIN_ASSIGN_OR_RETURN(const std::vector<char> bytes,
                             store_->wait(key_of(member), options_.appear_timeout_seconds));
      absl::StatusOr<PathEntry> entry = parse_path_entry(std::string(bytes.begin(), bytes.end()));
      // Not bad input, whatever it is called: that would end the run.
      if (!entry.ok()) return absl::UnavailableError(entry.status().message());
      entries_[member] = *std::move(entry);
    }
  }
  return absl::OkStatus();
}

std::vector<PathEntry> FormationRound::entries_of(const Wanted& wanted) const {
  std::vector<PathEntry> entries;
  for (plans::WorkerId member : wanted.members) entries.push_back(entries_.at(member));
  return entries;
}

/// Nobody insists on a way for activations.
absl::StatusOr<GradientPath> FormationRound::path_of(const Wanted& wanted) const {
  std::vector<PathEntry> entries = entries_of(wanted);
  if (wanted.use == Use::kActivations) return choose_gradient_path("auto", entries);
  if (wanted.use == Use::kOtherReducer) {
    for (PathEntry& entry : entries) {
      if (!entry.library.empty()) entry.detail = "sync.reducer is none of NCCL's";
      entry.library.clear();
    }
  }
  return choose_gradient_path(options_.backend, entries);
}

void FormationRound::settle() {
  std::vector<plans::GroupId> groups;
  std::vector<std::vector<plans::WorkerId>> on_device;
  for (const auto& [group, wanted] : options_.wanted) {
    absl::StatusOr<GradientPath> path = path_of(wanted);
    if (!path.ok()) {
      outcomes_.emplace(group, path.status());
      continue;
    }
    Outcome outcome;
    outcome.path = *std::move(path);
    outcome.activations = passed_on_type(entries_of(wanted));
    outcome.members = wanted.members;
    std::sort(outcome.members.begin(), outcome.members.end());
    if (outcome.path.on_device) {
      groups.push_back(group);
      on_device.push_back(outcome.members);
    }
    outcomes_.emplace(group, std::move(outcome));
  }
  std::map<plans::WorkerId, plans::GroupOffer> offers;
  for (const auto& [worker, entry] : entries_) offers[worker] = entry.offer;
  const std::vector<plans::Formation> formations = plans::choose_formations(on_device, offers);
  for (size_t i = 0; i < groups.size(); ++i) {
    Outcome& outcome = *outcomes_.at(groups[i]);
    outcome.formation = formations[i];
    claim(groups[i], outcome);
  }
  options_.group_store->keep_only(options_.workers);
}

/// What a group comes of is nobody else's from now on. A parent that others shrink goes, too: it is
/// none any more to them. One that is split has a part for each of its members.
void FormationRound::claim(plans::GroupId group, Outcome& outcome) {
  const plans::Formation& formation = outcome.formation;
  DeviceGroupStore& group_store = *options_.group_store;
  const bool is_own =
      std::binary_search(outcome.members.begin(), outcome.members.end(), options_.self);
  if (formation.kind == plans::FormationKind::kNewId) return;
  if (!is_own) {
    plans::FormedGroup unused;
    if (formation.kind == plans::FormationKind::kShrink) {
      group_store.give_up(group_store.take(formation.parent, unused));
    }
    return;
  }
  outcome.from = formation.kind == plans::FormationKind::kCached
                     ? group_store.use(formation.parent)
                     : group_store.take(formation.parent, outcome.parent);
  if (outcome.from != nullptr) return;
  outcomes_.at(group) = absl::UnavailableError(
      absl::StrCat("group ", formation.parent, ", which was offered, is gone"));
}

}  // namespace skein::actors
