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
  if (body.isAverage()) on_average(body.getAverage());
  if (body.isAveraged()) on_averaged(body.getAveraged());
}

void CarriedSamples::on_update_begun(ProcessId process) {
  for (auto& [id, replica] : replicas_) {
    if (replica.process == process) replica.being_added = std::exchange(replica.pending, {});
  }
}

void CarriedSamples::on_update(ProcessId process, const plans::SampleClaim& claim) {
  for (auto& [id, replica] : replicas_) {
    if (replica.process != process) continue;
    replica.own.insert(claim.first);
    replica.own.merge(replica.being_added);
    replica.being_added.clear();
  }
}

void CarriedSamples::on_copied(ProcessId process, uint64_t number) {
  const auto group = groups_.find(number);
  if (group == groups_.end()) return;
  for (plans::ReplicaId member : group->second.members) {
    const Replica& own = replicas_[member];
    if (own.process == process) group->second.inputs[member] = input_of(own);
  }
}

CarriedSamples::Samples CarriedSamples::input_of(const Replica& replica) const {
  Samples input = replica.own;
  add(replica.pending, input);
  add(replica.being_added, input);
  return input;
}

/// Each member is sent the same, and so are shards.
void CarriedSamples::on_average(const net::schema::Average::Reader& average) {
  const plans::ReplicaId receiver{average.getReplica()};
  if (average.getMembers().size() < 2 && !average.getGlobal() && !average.getServer()) return;
  const auto [found, is_new] = groups_.try_emplace(average.getNumber());
  Group& group = found->second;
  if (average.getNonblocking()) group.nonblocking.insert(receiver);
  if (!is_new) return;
  group.is_global = average.getGlobal();
  group.has_server = average.getServer();
  for (const auto member : average.getMembers()) {
    group.members.insert(plans::ReplicaId{member.getReplica()});
  }
  if (group.has_server) group.served = servers_[replicas_[receiver].stage];
}

/// When the first one is through, all have put in what they had. Who is alone has copied nothing.
void CarriedSamples::on_averaged(const net::schema::Averaged::Reader& averaged) {
  const auto found = groups_.find(averaged.getNumber());
  if (!averaged.getOk() || found == groups_.end()) return;
  Group& group = found->second;
  if (!group.result) {
    group.result = group.served;
    for (plans::ReplicaId member : group.members) {
      const auto copied = group.inputs.find(member);
      add(copied != group.inputs.end() ? copied->second : input_of(replicas_[member]),
          *group.result);
    }
  }
  const plans::ReplicaId id{averaged.getReplica()};
  Replica& replica = replicas_[id];
  if (group.nonblocking.contains(id)) {
    add(*group.result, replica.pending);
  } else {
    add(*group.result, replica.own);
    replica.pending.clear();
  }
  replica.has_common = group.is_global;
  group.through.insert(id);
  if (group.has_server && group.through == group.members) {
    add(*group.result, servers_[replica.stage]);
  }
}

void CarriedSamples::on_round(const std::set<uint64_t>& claims) {
  for (auto& [id, replica] : replicas_) {
    if (!std::exchange(replica.has_common, false)) continue;
    for (uint64_t first : claims) {
      if (replica.own.contains(first)) continue;
      on_violation_(absl::StrCat("a round is journaled, and the weights of replica ", id.value,
                                 " lack the samples from ", first));
      break;
    }
    replica.own.clear();
  }
  for (auto& [stage, served] : servers_) served.clear();
}

}  // namespace skein::sim
