#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "plans/sync/group_scheduler.hpp"
#include "plans/sync/pipeline_layout.hpp"

namespace skein::plans {

/// Whose updates are in whose weights, so that it is known what is gone with a pipeline replica.
/// Not thread-safe.
///
/// A pipeline replica applies its updates in order, so a replica that has taken a weighted sum with
/// one that had n of them has the first n: a count per pipeline replica says all, and who averages
/// takes the larger ones (a vector clock). How much of an update is left of it is not counted.
///
/// Whatever is not known for certain counts as not carried.
class CarriedUpdates {
 public:
  using Counts = std::vector<uint64_t>;  // [pipeline replicas], updates.

  explicit CarriedUpdates(PipelineLayout layout);

  /// All pipeline replicas have the same weights from now on, with all updates.
  void on_global();
  /// A pipeline replica applies one more at a stage.
  void on_update(uint32_t pipeline, uint32_t stage) { ++updates_[stage][pipeline]; }

  /// What the members of a group that begins have between them; with a server, what it has, too.
  Counts contribution(uint32_t stage, const std::vector<GroupMember>& members,
                      bool has_server) const;
  /// All of them are through with it.
  void on_averaged(uint32_t stage, const std::set<ReplicaId>& members, const Counts& counts,
                   bool has_server);

  /// The updates of a pipeline replica that some of `live` have, at every stage.
  uint64_t carried(uint32_t pipeline, const std::vector<uint32_t>& live) const;

 private:
  uint64_t count(ReplicaId replica, uint32_t pipeline) const;

  PipelineLayout layout_;
  std::vector<Counts> updates_;   // By stage: each pipeline replica's own, so far.
  std::vector<Counts> replicas_;  // Those of others.
  std::vector<Counts> servers_;   // By stage.
};

}  // namespace skein::plans
