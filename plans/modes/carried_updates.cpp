#include "plans/modes/carried_updates.hpp"

#include <algorithm>

namespace skein::plans {
namespace {

void take_larger(const CarriedUpdates::Counts& from, CarriedUpdates::Counts& to) {
  for (size_t column = 0; column < to.size(); ++column) {
    to[column] = std::max(to[column], from[column]);
  }
}

}  // namespace

CarriedUpdates::CarriedUpdates(ColumnLayout layout)
    : layout_(layout),
      updates_(layout.columns),
      replicas_(layout.replica_count(), updates_),
      servers_(layout.stages, updates_) {}

void CarriedUpdates::on_common() {
  for (Counts& each : replicas_) each = updates_;
  for (Counts& each : servers_) each = updates_;
}

uint64_t CarriedUpdates::count(ReplicaId replica, uint32_t column) const {
  return layout_.column_of(replica) == column ? updates_[column] : replicas_[replica.value][column];
}

CarriedUpdates::Counts CarriedUpdates::put_in(uint32_t stage,
                                              const std::vector<GroupMember>& members,
                                              bool has_server) const {
  Counts counts = has_server ? servers_[stage] : Counts(layout_.columns);
  for (const GroupMember& member : members) {
    Counts own = replicas_[member.replica.value];
    const uint32_t column = layout_.column_of(member.replica);
    own[column] = updates_[column];
    // It may not have come to its last one, as it goes on computing.
    if (member.is_passive && own[column] > 0) --own[column];
    take_larger(own, counts);
  }
  return counts;
}

void CarriedUpdates::on_combined(uint32_t stage, const std::set<ReplicaId>& members,
                                 const Counts& counts, bool has_server) {
  for (ReplicaId replica : members) take_larger(counts, replicas_[replica.value]);
  if (has_server) take_larger(counts, servers_[stage]);
}

uint64_t CarriedUpdates::carried(uint32_t column, const std::vector<uint32_t>& live) const {
  uint64_t everywhere = updates_[column];
  for (uint32_t stage = 0; stage < layout_.stages; ++stage) {
    uint64_t most = 0;
    for (uint32_t each : live) most = std::max(most, count(layout_.replica(stage, each), column));
    everywhere = std::min(everywhere, most);
  }
  return everywhere;
}

}  // namespace skein::plans
