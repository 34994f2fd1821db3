#include "plans/plan/plan_part.hpp"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/collectives/exchange_partners.hpp"

namespace skein::plans {
namespace {

absl::Status wrong_part(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("the part of the plan is broken: ", what));
}

const StagePart* find_stage(const PlanPart& part, int32_t stage) {
  for (const StagePart& each : part.stages) {
    if (each.stage == stage) return &each;
  }
  return nullptr;
}

const ReplicaPlan* find_replica_in(const PlanPart& part, ReplicaId id) {
  for (const StagePart& stage : part.stages) {
    for (const ReplicaPlan& each : stage.replicas) {
      if (each.id == id) return &each;
    }
  }
  return nullptr;
}

const GroupPart* find_group(const PlanPart& part, GroupId id) {
  for (const GroupPart& each : part.groups) {
    if (each.id == id) return &each;
  }
  return nullptr;
}

absl::Status check_stage(const PlanPart& part, const StagePart& stage, int64_t layer_count) {
  const std::string name = absl::StrCat("stage ", stage.stage);
  const bool begins = stage.stage == 0;
  const bool ends = stage.stage + 1 == part.stage_count;
  if (stage.stage < 0 || stage.stage >= part.stage_count) {
    return wrong_part(absl::StrCat(name, " of ", part.stage_count));
  }
  if (stage.layers.begin < 0 || stage.layers.end <= stage.layers.begin ||
      stage.layers.end > layer_count || begins != (stage.layers.begin == 0) ||
      ends != (stage.layers.end == layer_count)) {
    return wrong_part(absl::StrCat(name, " has layers ", stage.layers.begin, " to ",
                                   stage.layers.end, " of ", layer_count));
  }
  if (stage.replica_count < 1 || begins != (stage.first.value == 0)) {
    return wrong_part(absl::StrCat(name, " has ", stage.replica_count, " replicas from ",
                                   stage.first.value, " on"));
  }
  int64_t row = 0;
  int64_t id = stage.first.value;
  for (const ReplicaPlan& replica : stage.replicas) {
    const bool is_of_stage =
        replica.id.value >= id && replica.id.value < stage.first.value + stage.replica_count;
    if (!is_of_stage || replica.worker.value == 0 || replica.worker.value > part.worker_max) {
      return wrong_part(absl::StrCat("replica ", replica.id.value, " of ", name, " on worker ",
                                     replica.worker.value));
    }
    if (replica.rows.begin < row || replica.rows.count < 1 ||
        replica.rows.end() > part.microbatch_rows) {
      return wrong_part(absl::StrCat("replica ", replica.id.value, " has rows ", replica.rows.begin,
                                     "+", replica.rows.count));
    }
    id = int64_t{replica.id.value} + 1;
    if (part.mode != kTokenMode) row = replica.rows.end();
  }
  return absl::OkStatus();
}

absl::Status check_stages(const PlanPart& part, int64_t layer_count) {
  const StagePart* before = nullptr;
  for (const StagePart& stage : part.stages) {
    SKEIN_RETURN_IF_ERROR(check_stage(part, stage, layer_count));
    if (before && stage.stage <= before->stage) {
      return wrong_part(absl::StrCat("stage ", stage.stage, " is out of order"));
    }
    const bool is_next = before && stage.stage == before->stage + 1;
    const bool fits =
        !is_next || (stage.layers.begin == before->layers.end &&
                     stage.first.value == before->first.value + before->replica_count);
    if (!fits) return wrong_part(absl::StrCat("stage ", stage.stage, " does not follow its stage"));
    before = &stage;
  }
  return absl::OkStatus();
}

/// Tokens of a stage may go to all of the next one, and each is made of whole ones.
absl::Status check_token_neighbour(const PlanPart& part, const ReplicaPlan& own, int32_t step) {
  const StagePart& other = stage_at(part, stage_of(part, own.id) + step);
  if (static_cast<int64_t>(other.replicas.size()) != other.replica_count) {
    return wrong_part(absl::StrCat("it lacks replicas of stage ", other.stage));
  }
  for (const ReplicaPlan& each : other.replicas) {
    const int64_t front = step > 0 ? own.rows.count : each.rows.count;
    const int64_t back = step > 0 ? each.rows.count : own.rows.count;
    if (own.rows.begin != 0 || each.rows.begin != 0 || back % front != 0 ||
        each.rows.count != other.replicas.front().rows.count) {
      return wrong_part(absl::StrCat("tokens of replica ", own.id.value, " and of replica ",
                                     each.id.value, " do not fit"));
    }
  }
  return absl::OkStatus();
}

/// Every row of the replica comes from somebody, and goes to somebody.
absl::Status check_routes(const PlanPart& part, const ReplicaPlan& own, int32_t stage) {
  for (int step : {+1, -1}) {
    const int32_t neighbour = stage + step;
    if (neighbour < 0 || neighbour >= part.stage_count) continue;
    if (!find_stage(part, neighbour)) {
      return wrong_part(absl::StrCat("it lacks stage ", neighbour));
    }
    if (part.mode == kTokenMode) {
      SKEIN_RETURN_IF_ERROR(check_token_neighbour(part, own, step));
      continue;
    }
    int64_t row = own.rows.begin;
    for (const Route& route : routes_from(part, own.id, step)) {
      if (route.rows.begin != row) break;
      row = route.rows.end();
    }
    if (row != own.rows.end()) {
      return wrong_part(
          absl::StrCat("row ", row, " of replica ", own.id.value, " has no stage ", neighbour));
    }
  }
  return absl::OkStatus();
}

absl::Status check_group(const PlanPart& part, const GroupPart& group, const ReplicaPlan& own,
                         ReducerKind reducer) {
  const std::string name = absl::StrCat("group ", group.id.value);
  const int32_t stage = stage_of(part, own.id);
  const StagePart& members = stage_at(part, stage);
  int64_t rank = int64_t{own.id.value} - members.first.value;
  int64_t count = members.replica_count;
  const bool is_tied = group.scope == GroupScope::kTied;
  if (is_tied && part.mode == kTokenMode) {  // See `token_groups`.
    if (stage != 0) return wrong_part(absl::StrCat(name, " has a replica of stage ", stage));
  } else if (is_tied) {
    const StagePart* front = find_stage(part, 0);
    const StagePart* back = find_stage(part, part.stage_count - 1);
    if (!front || !back || front == back || (&members != front && &members != back)) {
      return wrong_part(absl::StrCat(name, " lacks an end of the pipeline"));
    }
    if (&members == back) rank += front->replica_count;
    count = front->replica_count + back->replica_count;
    reducer = ReducerKind::kSum;
  } else if (group.id.value != static_cast<uint32_t>(stage)) {
    return wrong_part(absl::StrCat(name, " is not that of stage ", stage));
  }
  if (group.rank != rank || group.rank_count != count || count < 2) {
    return wrong_part(absl::StrCat(name, " has rank ", group.rank, " of ", group.rank_count));
  }
  for (uint32_t partner : exchange_partners(reducer, group.rank, group.rank_count)) {
    const auto found = group.partners.find(partner);
    if (found == group.partners.end() || found->second.value == 0) {
      return wrong_part(absl::StrCat(name, " lacks its rank ", partner));
    }
  }
  for (const auto& [partner, worker] : group.partners) {
    if (partner >= group.rank_count || partner == group.rank) {
      return wrong_part(absl::StrCat(name, " has a partner of rank ", partner));
    }
  }
  return absl::OkStatus();
}

/// Each micro-batch goes forward and backward once through each stage of the worker. `own`: how
/// many there are, by stage.
absl::Status check_actions(const PlanPart& part, const std::map<int32_t, int64_t>& own) {
  std::map<std::pair<int32_t, int32_t>, std::string> done;
  for (const Action& action : part.actions) {
    const auto stage = own.find(action.stage);
    if (stage == own.end() || action.microbatch < 0 || action.microbatch >= stage->second) {
      return wrong_part(absl::StrCat("it has no stage for ", to_text(action)));
    }
    std::string& seen = done[{action.stage, action.microbatch}];
    seen += action.type == ActionType::kForward         ? "F"
            : action.type == ActionType::kBackward      ? "B"
            : action.type == ActionType::kBackwardInput ? "I"
                                                        : "W";
    if (seen != "F" && seen != "FB" && seen != "FI" && seen != "FIW") {
      return wrong_part(absl::StrCat("it cannot do ", to_text(action)));
    }
  }
  size_t all = 0;
  for (const auto& [stage, count] : own) all += static_cast<size_t>(count);
  if (done.size() != all) {
    return wrong_part(absl::StrCat("it passes ", done.size(), " times a stage"));
  }
  for (const auto& [place, seen] : done) {
    if (seen != "FB" && seen != "FIW") {
      return wrong_part(
          absl::StrCat("stage ", place.first, " does not end micro-batch ", place.second));
    }
  }
  return absl::OkStatus();
}

/// By what the worker's list does, each action ends behind the one before and behind its inputs:
/// then devices that keep to this order do not wait for each other for ever.
absl::Status check_ends(const PlanPart& part) {
  for (const StagePart& stage : part.stages) {
    const auto count = static_cast<size_t>(part.microbatch_count);
    if (stage.ends.forward.size() != count || stage.ends.backward.size() != count) {
      return wrong_part(absl::StrCat("it lacks the ends of stage ", stage.stage));
    }
  }
  uint64_t before = 0;
  for (const Action& action : part.actions) {
    if (action.type == ActionType::kBackwardWeight) continue;
    const auto microbatch = static_cast<size_t>(action.microbatch);
    const bool is_forward = action.type == ActionType::kForward;
    const auto end_at = [&](int32_t stage) {
      const StageEnds& ends = stage_at(part, stage).ends;
      return (is_forward ? ends.forward : ends.backward)[microbatch];
    };
    const uint64_t end = end_at(action.stage);
    const int32_t input = action.stage + (is_forward ? -1 : +1);
    const bool has_input = input >= 0 && input < part.stage_count;
    if (end <= before || (has_input && end <= end_at(input)) ||
        end > stage_at(part, action.stage).ends.last) {
      return wrong_part(absl::StrCat(to_text(action), " ends at ", end));
    }
    before = end;
  }
  return absl::OkStatus();
}

absl::Status check_device_group(const PlanPart& part, const DeviceGroupPart& group,
                                WorkerId worker) {
  const std::string name = absl::StrCat("group ", group.id.value, " of devices");
  const bool knows_all = worker == part.device_leader || group.rank == 0;
  if (group.rank_count < 2 || (group.rank && *group.rank >= group.rank_count) ||
      (!group.rank && worker != part.device_leader) ||
      (knows_all && group.members.size() != group.rank_count)) {
    return wrong_part(
        absl::StrCat(name, " has ", group.members.size(), " of ", group.rank_count, " members"));
  }
  const std::set<WorkerId> unlike(group.members.begin(), group.members.end());
  if (unlike.size() != group.members.size() || unlike.contains(WorkerId{}) ||
      (knows_all && unlike.contains(worker) != group.rank.has_value())) {
    return wrong_part(absl::StrCat(name, " has a member twice, or another one"));
  }
  for (const auto& [neighbour, rank] : group.neighbours) {
    if (rank < group.rank_count && group.rank != rank) continue;
    return wrong_part(absl::StrCat(name, " has a neighbour of rank ", rank));
  }
  return absl::OkStatus();
}

/// With whom its devices pass on activations: everybody on the other side of `front`.
absl::Status check_link(const PlanPart& part, const DeviceGroupPart& group, WorkerId worker) {
  bool is_end = false;
  for (const ReplicaPlan& own : hosted_by(part, worker)) {
    const int32_t stage = stage_of(part, own.id);
    if (stage != group.front && stage != group.front + 1) continue;
    is_end = true;
    for (const Route& route : routes_from(part, own.id, stage == group.front ? +1 : -1)) {
      const WorkerId other = replica_of(part, route.to).worker;
      if (group.neighbours.contains(other)) continue;
      return wrong_part(
          absl::StrCat("the link behind stage ", group.front, " lacks worker ", other.value));
    }
  }
  if (is_end) return absl::OkStatus();
  return wrong_part(absl::StrCat("a link behind stage ", group.front, ", at which it has no end"));
}

absl::Status check_devices(const PlanPart& part, WorkerId worker) {
  if (part.device_leader.value == 0) {
    if (part.device_groups.empty()) return absl::OkStatus();
    return wrong_part("nobody decides how its devices form groups");
  }
  std::set<GroupId> sums;
  const DeviceGroupPart* before = nullptr;
  for (const DeviceGroupPart& group : part.device_groups) {
    if (before && group.id <= before->id) {
      return wrong_part(absl::StrCat("group ", group.id.value, " of devices is out of order"));
    }
    before = &group;
    SKEIN_RETURN_IF_ERROR(check_device_group(part, group, worker));
    if (!group.rank) continue;
    if (group.use == DeviceUse::kActivations) {
      SKEIN_RETURN_IF_ERROR(check_link(part, group, worker));
      continue;
    }
    const GroupPart* reduction = find_group(part, group.id);
    if (!reduction || reduction->rank_count != group.rank_count) {
      return wrong_part(absl::StrCat("group ", group.id.value, " of devices reduces nothing"));
    }
    sums.insert(group.id);
  }
  if (sums.size() != part.groups.size()) return wrong_part("it lacks groups of devices");
  return part.actions.empty() ? absl::OkStatus() : check_ends(part);
}

}  // namespace

PlanParts::PlanParts(const Plan& plan, const PartNeeds& needs,
                     const std::vector<WorkerId>& snapshot_peers,
                     const std::vector<ActionTimes>& times)
    : plan_(plan), needs_(needs) {
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const std::vector<ReplicaPlan>& replicas = plan.stages[s].replicas;
    for (size_t i = 0; i < replicas.size(); ++i) {
      hosted_[replicas[i].worker].push_back({s, i});
      worker_of_.push_back(replicas[i].worker);
      worker_max_ = std::max(worker_max_, replicas[i].worker.value);
    }
    if (s < snapshot_peers.size() && snapshot_peers[s].value != 0) {
      kept_[snapshot_peers[s]].push_back(s);
    }
  }
  if (!needs.devices) return;
  ends_ = action_ends(plan, times);
  wanted_ = wanted_groups(plan, needs.reducer);
  for (size_t i = 0; i < wanted_.size(); ++i) {
    std::vector<WorkerId>& members = by_rank_.emplace_back(wanted_[i].members);
    std::sort(members.begin(), members.end());
    for (WorkerId member : members) wanted_of_[member].push_back(i);
  }
}

PlanPart PlanParts::of(WorkerId worker) const {
  PlanPart part;
  part.generation = plan_.generation;
  part.mode = plan_.mode;
  part.microbatch_count = plan_.microbatch_count;
  part.microbatch_rows = plan_.microbatch_rows;
  part.recompute = plan_.recompute;
  part.stage_count = static_cast<int32_t>(plan_.stages.size());
  part.worker_max = worker_max_;
  Known known;
  if (const auto hosted = hosted_.find(worker); hosted != hosted_.end()) {
    const Place& first = hosted->second.front();
    const ReplicaPlan& own = plan_.stages[first.stage].replicas[first.index];
    part.actions = plan_.actions[static_cast<size_t>(own.rank)];
    for (const Place& own : hosted->second) {
      know(own, known);
      if (needs_.all_of_stage) {
        const size_t count = plan_.stages[own.stage].replicas.size();
        for (size_t i = 0; i < count; ++i) know({own.stage, i}, known);
      }
      for (int step : {+1, -1}) know_routes(own, step, known);
      add_groups(own, known, part);
    }
  }
  if (const auto kept = kept_.find(worker); kept != kept_.end()) {
    for (size_t stage : kept->second) known[stage];
  }
  for (const auto& [s, replicas] : known) {
    const StagePlan& stage = plan_.stages[s];
    StagePart& to = part.stages.emplace_back();
    to.stage = static_cast<int32_t>(s);
    to.layers = stage.layers;
    to.first = stage.replicas.front().id;
    to.replica_count = static_cast<int64_t>(stage.replicas.size());
    for (const auto& [id, replica] : replicas) to.replicas.push_back(replica);
    if (needs_.devices) to.ends = ends_[s];
  }
  if (needs_.devices) add_device_groups(worker, part);
  return part;
}

void PlanParts::add_device_groups(WorkerId worker, PlanPart& part) const {
  part.device_leader = plan_.stages.front().replicas.front().worker;
  const bool leads = worker == part.device_leader;
  const auto own = wanted_of_.find(worker);
  if (!leads && own == wanted_of_.end()) return;
  std::vector<size_t> known;
  if (leads) {
    for (size_t i = 0; i < wanted_.size(); ++i) known.push_back(i);
  } else {
    known = own->second;
  }
  for (size_t i : known) {
    const WantedGroup& wanted = wanted_[i];
    const auto rank_of = [&](WorkerId member) -> std::optional<uint32_t> {
      const auto found = std::lower_bound(by_rank_[i].begin(), by_rank_[i].end(), member);
      if (found == by_rank_[i].end() || *found != member) return std::nullopt;
      return static_cast<uint32_t>(found - by_rank_[i].begin());
    };
    DeviceGroupPart& to = part.device_groups.emplace_back();
    to.id = wanted.id;
    to.use = wanted.use;
    to.front = wanted.front;
    to.rank = rank_of(worker);
    to.rank_count = static_cast<uint32_t>(wanted.members.size());
    if (leads || to.rank == 0) to.members = wanted.members;
    if (!to.rank || wanted.use != DeviceUse::kActivations) continue;
    for (const ReplicaPlan& replica : hosted_by(part, worker)) {
      const int32_t stage = stage_of(part, replica.id);
      if (stage != wanted.front && stage != wanted.front + 1) continue;
      for (const Route& route : routes_from(part, replica.id, stage == wanted.front ? +1 : -1)) {
        const WorkerId other = replica_of(part, route.to).worker;
        to.neighbours[other] = *rank_of(other);
      }
    }
  }
}

void PlanParts::know(const Place& place, Known& known) const {
  const ReplicaPlan& replica = plan_.stages[place.stage].replicas[place.index];
  known[place.stage].emplace(replica.id, replica);
}

/// The replicas of a stage tile the rows in order, so those of a range stand side by side.
void PlanParts::know_routes(const Place& own, int step, Known& known) const {
  const auto neighbour = static_cast<int64_t>(own.stage) + step;
  if (neighbour < 0 || neighbour >= static_cast<int64_t>(plan_.stages.size())) return;
  const auto stage = static_cast<size_t>(neighbour);
  if (plan_.mode == kTokenMode) {  // Any of them may take its tokens.
    for (size_t i = 0; i < plan_.stages[stage].replicas.size(); ++i) know({stage, i}, known);
    return;
  }
  const RowRange mine = plan_.stages[own.stage].replicas[own.index].rows;
  const std::vector<ReplicaPlan>& others = plan_.stages[stage].replicas;
  const auto first = std::partition_point(
      others.begin(), others.end(),
      [&](const ReplicaPlan& other) { return other.rows.end() <= mine.begin; });
  for (auto other = first; other != others.end() && other->rows.begin < mine.end(); ++other) {
    know({stage, static_cast<size_t>(other - others.begin())}, known);
  }
}

void PlanParts::add_groups(const Place& own, Known& known, PlanPart& part) const {
  const auto index = static_cast<uint32_t>(own.index);
  const ReductionGroup& group = plan_.groups[own.stage];
  if (group.members.size() > 1) part.groups.push_back(group_part(group, index));
  const size_t last = plan_.stages.size() - 1;
  const bool is_end = own.stage == 0 || own.stage == last;
  if (plan_.groups.size() == plan_.stages.size() || !is_end) return;
  if (plan_.mode == kLocalMode) {  // The two ends of a pipeline replica need no group.
    know({own.stage == 0 ? last : 0, own.index}, known);
    return;
  }
  if (plan_.mode == kTokenMode) {  // The first stage's replicas alone; see `token_groups`.
    const ReductionGroup& tied = plan_.groups.back();
    if (own.stage == 0 && tied.members.size() > 1) part.groups.push_back(group_part(tied, index));
    return;
  }
  known[0];
  known[last];
  const auto front = static_cast<uint32_t>(plan_.stages.front().replicas.size());
  part.groups.push_back(group_part(plan_.groups.back(), own.stage == 0 ? index : front + index));
}

GroupPart PlanParts::group_part(const ReductionGroup& group, uint32_t rank) const {
  GroupPart part;
  part.id = group.id;
  part.scope = group.scope;
  part.member = group.members[rank];
  part.rank = rank;
  part.rank_count = static_cast<uint32_t>(group.members.size());
  // A tied gradient is always summed.
  const ReducerKind kind = group.scope == GroupScope::kTied ? ReducerKind::kSum : needs_.reducer;
  for (uint32_t partner : exchange_partners(kind, rank, part.rank_count)) {
    part.partners[partner] = worker_at(group.members[partner]);
  }
  return part;
}

absl::Status validate(const PlanPart& part, WorkerId worker, const ModelSpec& model,
                      ReducerKind reducer) {
  if (part.stage_count < 1 || part.microbatch_count < 1 || part.microbatch_rows < 1) {
    return wrong_part("it has no stages or no micro-batches");
  }
  SKEIN_RETURN_IF_ERROR(check_stages(part, layer_count(model)));
  std::map<int32_t, int64_t> own;
  std::set<GroupId> groups;
  for (const ReplicaPlan& replica : hosted_by(part, worker)) {
    const int32_t stage = stage_of(part, replica.id);
    if (part.mode == kTokenMode && part.microbatch_rows % replica.rows.count != 0) {
      return wrong_part(absl::StrCat("tokens of ", replica.rows.count, " rows do not make up ",
                                     part.microbatch_rows));
    }
    if (!own.emplace(stage, passes_of(part, replica)).second) {
      return wrong_part(absl::StrCat("worker ", worker.value, " has stage ", stage, " twice"));
    }
    SKEIN_RETURN_IF_ERROR(check_routes(part, replica, stage));
    const bool is_end = stage == 0 || stage + 1 == part.stage_count;
    std::set<GroupId> wanted;
    if (stage_at(part, stage).replica_count > 1) wanted.insert({static_cast<uint32_t>(stage)});
    if (model.tied_head && part.stage_count > 1 && is_end) {
      if (part.mode == kTokenMode) {
        const bool is_member = stage == 0 && stage_at(part, stage).replica_count > 1;
        if (is_member) wanted.insert({static_cast<uint32_t>(part.stage_count)});
      } else if (part.mode != kLocalMode) {
        wanted.insert({static_cast<uint32_t>(part.stage_count)});
      } else if (!other_end(part, replica.id)) {
        return wrong_part(absl::StrCat("it lacks the other end of replica ", replica.id.value));
      }
    }
    for (GroupId id : wanted) {
      const GroupPart* group = find_group(part, id);
      const bool is_tied = id.value == static_cast<uint32_t>(part.stage_count);
      if (!group || group->member != replica.id || !groups.insert(id).second ||
          is_tied != (group->scope == GroupScope::kTied)) {
        return wrong_part(absl::StrCat("replica ", replica.id.value, " is not in group ", id.value,
                                       ", or it is there twice"));
      }
      SKEIN_RETURN_IF_ERROR(check_group(part, *group, replica, reducer));
    }
  }
  if (groups.size() != part.groups.size()) return wrong_part("it has groups of others");
  SKEIN_RETURN_IF_ERROR(check_actions(part, own));
  return check_devices(part, worker);
}

absl::Status check_has_stage(const PlanPart& part, int32_t stage) {
  if (find_stage(part, stage)) return absl::OkStatus();
  return wrong_part(absl::StrCat("it lacks stage ", stage));
}

const StagePart& stage_at(const PlanPart& part, int32_t stage) {
  const StagePart* found = find_stage(part, stage);
  SKEIN_CHECK(found) << "the part has no stage " << stage;
  return *found;
}

int32_t stage_of(const PlanPart& part, ReplicaId id) {
  for (const StagePart& stage : part.stages) {
    const int64_t index = int64_t{id.value} - stage.first.value;
    if (index >= 0 && index < stage.replica_count) return stage.stage;
  }
  SKEIN_CHECK(false) << "no replica " << id;
  return -1;
}

const ReplicaPlan& replica_of(const PlanPart& part, ReplicaId id) {
  const ReplicaPlan* found = find_replica_in(part, id);
  SKEIN_CHECK(found) << "no replica " << id;
  return *found;
}

int64_t passes_of(const PlanPart& part, const ReplicaPlan& own) {
  if (part.mode != kTokenMode) return part.microbatch_count;
  return part.microbatch_count * part.microbatch_rows / own.rows.count;
}

bool validates(const PlanPart& part, const ReplicaPlan& own) {
  return part.mode != kTokenMode || stage_at(part, stage_of(part, own.id)).first == own.id;
}

std::vector<Route> routes_from(const PlanPart& part, ReplicaId replica, int step) {
  SKEIN_CHECK(step == 1 || step == -1) << step;
  std::vector<Route> routes;
  if (part.mode == kTokenMode) return routes;  // The coordinator says where each token goes.
  const StagePart* neighbour = find_stage(part, stage_of(part, replica) + step);
  if (!neighbour) return routes;
  const RowRange mine = replica_of(part, replica).rows;
  for (const ReplicaPlan& other : neighbour->replicas) {
    const int64_t begin = std::max(mine.begin, other.rows.begin);
    const int64_t end = std::min(mine.end(), other.rows.end());
    if (begin < end) routes.push_back({replica, other.id, {begin, end - begin}});
  }
  return routes;
}

const GroupPart& group_at(const PlanPart& part, GroupId id) {
  const GroupPart* found = find_group(part, id);
  SKEIN_CHECK(found) << "no group " << id;
  return *found;
}

std::vector<ReplicaPlan> hosted_by(const PlanPart& part, WorkerId worker) {
  std::vector<ReplicaPlan> hosted;
  for (const StagePart& stage : part.stages) {
    for (const ReplicaPlan& replica : stage.replicas) {
      if (replica.worker == worker) hosted.push_back(replica);
    }
  }
  return hosted;
}

std::optional<ReplicaId> other_end(const PlanPart& part, ReplicaId replica) {
  const int32_t stage = stage_of(part, replica);
  const int32_t last = part.stage_count - 1;
  if (last == 0 || (stage != 0 && stage != last)) return std::nullopt;
  const StagePart* other = find_stage(part, stage == 0 ? last : 0);
  if (!other) return std::nullopt;
  const ReplicaId id{other->first.value + replica.value - stage_at(part, stage).first.value};
  const bool is_known = std::any_of(other->replicas.begin(), other->replicas.end(),
                                    [&](const ReplicaPlan& each) { return each.id == id; });
  return is_known ? std::optional(id) : std::nullopt;
}

std::vector<WorkerId> peers_in(const PlanPart& part, WorkerId worker) {
  std::set<WorkerId> peers;
  for (const StagePart& stage : part.stages) {
    for (const ReplicaPlan& replica : stage.replicas) peers.insert(replica.worker);
  }
  for (const GroupPart& group : part.groups) {
    for (const auto& [rank, partner] : group.partners) peers.insert(partner);
  }
  peers.erase(worker);
  return {peers.begin(), peers.end()};
}

}  // namespace skein::plans
