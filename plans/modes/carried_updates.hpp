#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "plans/sync/column_layout.hpp"
#include "plans/sync/group_scheduler.hpp"

namespace skein::plans {

/// Whose updates are in whose weights, so that it is known what is gone with a column. Not
/// thread-safe.
///
/// A column applies its updates in order, so a replica that has taken a weighted sum with one that
/// had n of them has the first n: a count per column says all, and who combines takes the larger
/// ones (a vector clock). How much of an update is left of it is not counted.
///
/// Whatever is not known for certain counts as not carried.
class CarriedUpdates {
 public:
  using Counts = std::vector<uint64_t>;  // [columns], updates.

  explicit CarriedUpdates(ColumnLayout layout);

  /// All columns have the same weights from now on, with all updates.
  void on_common();
  /// A column is told to apply one more.
  void on_update(uint32_t column) { ++updates_[column]; }

  /// What the members of a group that begins have between them; with a server, what it has, too.
  Counts put_in(uint32_t stage, const std::vector<GroupMember>& members, bool has_server) const;
  /// All of them are through with it.
  void on_combined(uint32_t stage, const std::set<ReplicaId>& members, const Counts& counts,
                   bool has_server);

  /// The updates of a column that some of `live` have, at every stage.
  uint64_t carried(uint32_t column, const std::vector<uint32_t>& live) const;

 private:
  uint64_t count(ReplicaId replica, uint32_t column) const;

  ColumnLayout layout_;
  Counts updates_;                // Of each column, so far.
  std::vector<Counts> replicas_;  // Of others.
  std::vector<Counts> servers_;   // By stage.
};

}  // namespace skein::plans
