#include "tests/sim/carried_samples.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::sim {
namespace {

void add(const std::set<uint64_t>& from, std::set<uint64_t>& to) {
  to.insert(from.begin(), from.end());
}

}  // namespace

void CarriedSamples::on_prepared(ProcessId process, uint64_t generation, plans::ReplicaId replica,
                                 int32_t stage) {
  if (generation > generation_) {
    generation_ = generation;
    replicas_.clear();
    groups_.clear();
    servers_.clear();
  }
  if (generation < generation_) return;
  replicas_[replica] = {process, stage, {}, {}, {}, false};
}

void CarriedSamples::on_control(const net::schema::Envelope::Reader& envelope, bool arrives) {
  if (arrives || envelope.getGeneration() != generation_) return;
  const auto body = envelope.getBody();
  if (body.isCombine()) on_combine(body.getCombine());
  if (body.isCombined()) on_combined(body.getCombined());
}

void CarriedSamples::on_update_begun(ProcessId process) {
  for (auto& [id, replica] : replicas_) {
    if (replica.process == process) replica.being_added = std::exchange(replica.pending, {});
  }
}

void CarriedSamples::on_update(ProcessId process, const plans::SampleLease& lease) {
  for (auto& [id, replica] : replicas_) {
    if (replica.process != process) continue;
    replica.own.insert(lease.first);
    replica.own.merge(replica.being_added);
    replica.being_added.clear();
  }
}

CarriedSamples::Samples CarriedSamples::input_of(const Replica& replica) const {
  Samples input = replica.own;
  add(replica.pending, input);
  add(replica.being_added, input);
  return input;
}

/// Each member is sent the same, and so are shards.
void CarriedSamples::on_combine(const net::schema::Combine::Reader& combine) {
  const plans::ReplicaId receiver{combine.getReplica()};
  if (combine.getMembers().size() < 2 && !combine.getCommon() && !combine.getServer()) return;
  const auto [found, is_new] = groups_.try_emplace(combine.getNumber());
  Group& group = found->second;
  if (combine.getPassive()) group.passive[receiver] = input_of(replicas_[receiver]);
  if (!is_new) return;
  group.is_common = combine.getCommon();
  group.has_server = combine.getServer();
  for (const auto member : combine.getMembers()) {
    group.members.insert(plans::ReplicaId{member.getReplica()});
  }
  if (group.has_server) group.served = servers_[replicas_[receiver].stage];
}

/// When the first one is through, all have put in what they had.
void CarriedSamples::on_combined(const net::schema::Combined::Reader& combined) {
  const auto found = groups_.find(combined.getNumber());
  if (!combined.getOk() || found == groups_.end()) return;
  Group& group = found->second;
  if (!group.result) {
    group.result = group.served;
    for (plans::ReplicaId member : group.members) {
      const auto passive = group.passive.find(member);
      add(passive != group.passive.end() ? passive->second : input_of(replicas_[member]),
          *group.result);
    }
  }
  const plans::ReplicaId id{combined.getReplica()};
  Replica& replica = replicas_[id];
  if (group.passive.contains(id)) {
    add(*group.result, replica.pending);
  } else {
    add(*group.result, replica.own);
    replica.pending.clear();
  }
  replica.has_common = group.is_common;
  group.through.insert(id);
  if (group.has_server && group.through == group.members) {
    add(*group.result, servers_[replica.stage]);
  }
}

void CarriedSamples::on_segment(const std::set<uint64_t>& leases) {
  for (auto& [id, replica] : replicas_) {
    if (!std::exchange(replica.has_common, false)) continue;
    for (uint64_t first : leases) {
      if (replica.own.contains(first)) continue;
      on_violation_(absl::StrCat("a segment is journaled, and the weights of replica ", id.value,
                                 " lack the samples from ", first));
      break;
    }
    replica.own.clear();
  }
  for (auto& [stage, served] : servers_) served.clear();
}

}  // namespace skein::sim
