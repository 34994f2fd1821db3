#include "plans/modes/carried_updates.hpp"

#include <algorithm>

namespace skein::plans {
namespace {

void take_larger(const CarriedUpdates::Counts& from, CarriedUpdates::Counts& to) {
  for (size_t pipeline = 0; pipeline < to.size(); ++pipeline) {
    to[pipeline] = std::max(to[pipeline], from[pipeline]);
  }
}

}  // namespace

CarriedUpdates::CarriedUpdates(PipelineLayout layout)
    : layout_(layout),
      updates_(layout.stages, Counts(layout.pipelines)),
      replicas_(layout.replica_count(), Counts(layout.pipelines)),
      servers_(layout.stages, Counts(layout.pipelines)) {}

void CarriedUpdates::on_global() {
  for (uint32_t id = 0; id < layout_.replica_count(); ++id) {
    replicas_[id] = updates_[layout_.stage_of({id})];
  }
  servers_ = updates_;
}

uint64_t CarriedUpdates::count(ReplicaId replica, uint32_t pipeline) const {
  return layout_.pipeline_of(replica) == pipeline ? updates_[layout_.stage_of(replica)][pipeline]
                                                  : replicas_[replica.value][pipeline];
}

CarriedUpdates::Counts CarriedUpdates::contribution(uint32_t stage,
                                                    const std::vector<GroupMember>& members,
                                                    bool has_server) const {
  Counts counts = has_server ? servers_[stage] : Counts(layout_.pipelines);
  for (const GroupMember& member : members) {
    Counts own = replicas_[member.replica.value];
    const uint32_t pipeline = layout_.pipeline_of(member.replica);
    own[pipeline] = updates_[stage][pipeline];
    // It may not have come to its last one, as it goes on computing.
    if (member.is_nonblocking && own[pipeline] > 0) --own[pipeline];
    take_larger(own, counts);
  }
  return counts;
}

void CarriedUpdates::on_averaged(uint32_t stage, const std::set<ReplicaId>& members,
                                 const Counts& counts, bool has_server) {
  for (ReplicaId replica : members) take_larger(counts, replicas_[replica.value]);
  if (has_server) take_larger(counts, servers_[stage]);
}

uint64_t CarriedUpdates::carried(uint32_t pipeline, const std::vector<uint32_t>& live) const {
  uint64_t everywhere = updates_.front()[pipeline];
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    uint64_t most = 0;
    for (uint32_t each : live) most = std::max(most, count(layout_.replica(stage, each), pipeline));
    everywhere = std::min(everywhere, most);
  }
  return everywhere;
}

}  // namespace skein::plans
