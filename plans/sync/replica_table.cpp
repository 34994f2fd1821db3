#include "plans/sync/replica_table.hpp"

#include <algorithm>

#include "plans/base/check.hpp"

namespace skein::plans {

ReplicaTable::ReplicaTable(const PipelineLayout& layout)
    : layout_(layout), live_(layout.pipelines), replicas_(layout.replica_count()) {
  SKEIN_CHECK(layout.pipelines > 0 && layout.stages > 0);
}

bool ReplicaTable::change(const MembershipChange& change) {
  if (change.pipeline >= layout_.pipelines || live_[change.pipeline] == change.joins) return false;
  live_[change.pipeline] = change.joins;
  live_count_ += change.joins ? 1 : -1;
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    if (!change.joins) leave_group(stage, change.pipeline);
    at(stage, change.pipeline) = {.step_next = change.step};
  }
  return true;
}

void ReplicaTable::leave_group(uint32_t stage, uint32_t pipeline) {
  const Replica& replica = at(stage, pipeline);
  if (replica.place != Place::kInGroup) return;
  const auto group = under_way_.find(replica.group);
  std::erase(group->second.pipelines, pipeline);
  if (group->second.pipelines.empty()) under_way_.erase(group);
}

std::optional<uint32_t> ReplicaTable::accept(const ReadySignal& signal) {
  if (signal.replica.value >= replicas_.size()) return std::nullopt;
  Replica& replica = replicas_[signal.replica.value];
  if (!live_[layout_.pipeline_of(signal.replica)] || signal.step < replica.step_next) {
    return std::nullopt;
  }
  if (replica.place == Place::kWaiting || replica.is_early) return std::nullopt;
  replica.step = signal.step;
  replica.step_next = signal.step + 1;
  if (replica.place == Place::kInGroup) {
    replica.is_early = true;
    return std::nullopt;
  }
  replica.place = Place::kWaiting;
  return layout_.stage_of(signal.replica);
}

bool ReplicaTable::is_waiting(uint32_t stage, uint32_t pipeline) const {
  return at(stage, pipeline).place == Place::kWaiting;
}

GroupStart ReplicaTable::start(uint32_t stage, const std::vector<uint32_t>& pipelines,
                               Average average, double weight) {
  GroupStart start{
      .number = started_count_++, .stage = static_cast<int32_t>(stage), .average = average};
  for (const uint32_t pipeline : pipelines) {
    Replica& replica = at(stage, pipeline);
    SKEIN_CHECK(replica.place == Place::kWaiting)
        << "pipeline replica " << pipeline << " stage " << stage;
    start.members.push_back({layout_.replica(stage, pipeline), replica.step, weight});
    const bool is_over = average == Average::kLocal;
    replica.place = is_over ? Place::kComputing : Place::kInGroup;
    replica.group = start.number;
    if (is_over) ++replica.steps;
  }
  if (average != Average::kLocal) under_way_[start.number] = {stage, pipelines};
  return start;
}

std::optional<ReplicaTable::Ended> ReplicaTable::end(uint64_t number) {
  const auto group = under_way_.find(number);
  if (group == under_way_.end()) return std::nullopt;
  Ended ended = std::move(group->second);
  under_way_.erase(group);
  for (const uint32_t pipeline : ended.pipelines) {
    Replica& replica = at(ended.stage, pipeline);
    replica.place = replica.is_early ? Place::kWaiting : Place::kComputing;
    replica.is_early = false;
    ++replica.steps;
  }
  return ended;
}

}  // namespace skein::plans
