#include "actors/collectives/formation_round.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net/codec/bounds.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::actors {

FormationRound::FormationRound(Options options, std::shared_ptr<net::RendezvousStore> store)
    : options_(std::move(options)), store_(std::move(store)) {}

FormationRound::~FormationRound() {
  for (auto& [group, outcome] : outcomes_) {
    if (!outcome.ok() || outcome->from == nullptr) continue;
    const plans::Formation& formation = outcome->decision.formation;
    if (formation.kind == plans::FormationKind::kCached) {
      options_.group_store->release(formation.parent);
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
  if (leads()) {
    store_->deliver(key_of(options_.self), {text.begin(), text.end()});
  } else {
    store_->put(key_of(options_.self), {text.begin(), text.end()}, {options_.leader});
  }
  return own_;
}

absl::Status FormationRound::lead() {
  std::lock_guard lock(decide_mutex_);
  return lead_once();
}

absl::StatusOr<FormationRound::Outcome> FormationRound::decide(plans::GroupId group) {
  std::lock_guard lock(decide_mutex_);
  SKEIN_RETURN_IF_ERROR(lead_once());
  if (!is_settled_) {
    settled_ = settle();
    is_settled_ = true;
  }
  SKEIN_RETURN_IF_ERROR(settled_);
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

std::string FormationRound::key_of(plans::GroupId group) const {
  return absl::StrCat(options_.name, "/formation-", group.value);
}

absl::Status FormationRound::lead_once() {
  if (!leads() || has_led_) return led_;
  has_led_ = true;
  const absl::StatusOr<Entries> entries = hear();
  led_ = entries.status();
  SKEIN_RETURN_IF_ERROR(led_);
  const std::vector<GroupDecision> decisions = decide_all(*entries);
  for (size_t i = 0; i < decisions.size(); ++i) {
    const plans::DeviceGroupPart& group = options_.groups[i];
    put_for_members(*store_, options_.self, key_of(group.id), to_text(decisions[i]), group.members);
  }
  return led_;
}

absl::StatusOr<FormationRound::Entries> FormationRound::hear() const {
  Entries entries;
  for (const plans::DeviceGroupPart& group : options_.groups) {
    for (plans::WorkerId member : group.members) {
      if (entries.contains(member)) continue;
      SKEIN_ASSIGN_OR_RETURN(const std::vector<char> bytes,
                             store_->wait(key_of(member), options_.appear_timeout_seconds));
      absl::StatusOr<PathEntry> entry = parse_path_entry(std::string(bytes.begin(), bytes.end()));
      // Not bad input, whatever it is called: that would end the run.
      if (!entry.ok()) return absl::UnavailableError(entry.status().message());
      entries[member] = *std::move(entry);
    }
  }
  return entries;
}

/// Nobody insists on a way for activations.
GroupDecision FormationRound::path_of(const plans::DeviceGroupPart& group,
                                      const std::vector<PathEntry>& entries) const {
  GroupDecision decision;
  decision.activations = passed_on_type(entries);
  std::vector<PathEntry> able = entries;
  if (group.use == plans::DeviceUse::kOtherReducer) {
    for (PathEntry& entry : able) {
      if (!entry.library.empty()) entry.detail = "sync.reducer is none of NCCL's";
      entry.library.clear();
    }
  }
  const bool is_link = group.use == plans::DeviceUse::kActivations;
  absl::StatusOr<GradientPath> path =
      choose_gradient_path(is_link ? "auto" : options_.backend, able);
  decision.is_refused = !path.ok();
  decision.path =
      path.ok() ? *std::move(path) : GradientPath{false, std::string(path.status().message())};
  return decision;
}

std::vector<GroupDecision> FormationRound::decide_all(const Entries& entries) const {
  std::vector<GroupDecision> decisions;
  std::vector<std::vector<plans::WorkerId>> all, on_device;
  for (const plans::DeviceGroupPart& group : options_.groups) {
    std::vector<PathEntry> own;
    for (plans::WorkerId member : group.members) own.push_back(entries.at(member));
    decisions.push_back(path_of(group, own));
    std::vector<plans::WorkerId>& members = all.emplace_back(group.members);
    std::sort(members.begin(), members.end());
    if (decisions.back().path.on_device) on_device.push_back(members);
  }
  std::map<plans::WorkerId, plans::GroupOffer> offers;
  for (const auto& [worker, entry] : entries) offers[worker] = entry.offer;
  const std::vector<plans::Formation> formations = plans::choose_formations(on_device, offers);
  const auto kept = plans::kept_groups(all, offers, formations);
  auto formation = formations.begin();
  for (size_t i = 0; i < decisions.size(); ++i) {
    if (decisions[i].path.on_device) decisions[i].formation = *formation++;
    decisions[i].kept = {kept[i].begin(), kept[i].end()};
  }
  return decisions;
}

absl::StatusOr<GroupDecision> FormationRound::decision_of(plans::GroupId group) const {
  SKEIN_ASSIGN_OR_RETURN(const std::vector<char> bytes,
                         store_->wait(key_of(group), options_.appear_timeout_seconds));
  auto decision = parse_group_decision(std::string(bytes.begin(), bytes.end()));
  if (!decision.ok()) return absl::UnavailableError(decision.status().message());
  return decision;
}

/// First all words, then what this worker takes of its store, and what is left there goes.
absl::Status FormationRound::settle() {
  std::set<uint64_t> kept;
  for (const plans::DeviceGroupPart& group : options_.groups) {
    if (!group.rank) continue;
    SKEIN_ASSIGN_OR_RETURN(GroupDecision decision, decision_of(group.id));
    kept.insert(decision.kept.begin(), decision.kept.end());
    Outcome outcome;
    outcome.decision = std::move(decision);
    outcome.group = group;
    outcomes_.emplace(group.id, std::move(outcome));
  }
  for (auto& [group, outcome] : outcomes_) {
    const absl::Status claimed = claim(*outcome);
    if (!claimed.ok()) outcome = claimed;
  }
  options_.group_store->keep_only(kept);
  return absl::OkStatus();
}

/// What a group comes of is nobody else's from now on.
absl::Status FormationRound::claim(Outcome& outcome) const {
  const GroupDecision& decision = outcome.decision;
  if (decision.is_refused) {
    // Only a job that insists ends by what another worker says.
    return options_.backend == "nccl" ? absl::InvalidArgumentError(decision.path.reason)
                                      : absl::UnavailableError(decision.path.reason);
  }
  const plans::Formation& formation = decision.formation;
  if (!decision.path.on_device || formation.kind == plans::FormationKind::kNewId) {
    return absl::OkStatus();
  }
  outcome.from = formation.kind == plans::FormationKind::kCached
                     ? options_.group_store->use(formation.parent)
                     : options_.group_store->take(formation.parent, outcome.parent);
  if (outcome.from != nullptr) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("group ", formation.parent, ", which was offered, is gone"));
}

void put_for_members(net::RendezvousStore& store, plans::WorkerId self, const std::string& key,
                     const std::string& value, const std::vector<plans::WorkerId>& members) {
  std::vector<plans::WorkerId> others;
  std::copy_if(members.begin(), members.end(), std::back_inserter(others),
               [&](plans::WorkerId each) { return each != self; });
  const std::vector<char> bytes(value.begin(), value.end());
  for (size_t begin = 0; begin < others.size(); begin += net::kMembersMax) {
    const size_t end = std::min(others.size(), begin + net::kMembersMax);
    store.put(key, bytes,
              {others.begin() + static_cast<ptrdiff_t>(begin),
               others.begin() + static_cast<ptrdiff_t>(end)});
  }
}

}  // namespace skein::actors
