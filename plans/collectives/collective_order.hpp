#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>

namespace skein::plans {

/// An operation of a group, or of two of its members. All name it by the same key, and keys of
/// unlike operations differ, so that all devices agree on one order of everything that is ever
/// done.
struct CollectiveKey {
  uint64_t step = 0;
  uint64_t place = 0;    // Among all that is done in a step: `communication_places`.
  int32_t sequence = 0;  // The operation's number in its group and step: its bucket.
  auto operator<=>(const CollectiveKey&) const = default;
};

/// The order rule for groups that share a device and whose operations wait inside for their other
/// members, as NCCL's do: a device begins its operations in ascending order of their keys, each
/// when the one before has ended, also when a later one is ready first.
///
/// So the least operation that has not ended is next on each of its members' devices. It ends as
/// soon as all of them have what it takes, which never depends on a later operation: no deadlock,
/// whichever groups overlap. Begun as they become ready, two operations of two groups that share
/// two devices can each wait for the other (tests/plans/collectives/collective_order_test.cpp).
class CollectiveOrder {
 public:
  /// The operation will become ready here. It comes behind all that have begun.
  void expect(const CollectiveKey& key);
  /// It is ready: it may begin if it is returned, or later. One that was not expected, or is ready
  /// already, changes nothing.
  std::optional<CollectiveKey> on_ready(const CollectiveKey& key);
  /// What has begun has ended; the next may begin if it is ready. Another key changes nothing.
  std::optional<CollectiveKey> on_end(const CollectiveKey& key);

  /// Nothing is expected that has not ended.
  bool is_idle() const { return expected_.empty(); }

 private:
  std::optional<CollectiveKey> begin_next();

  std::map<CollectiveKey, bool> expected_;  // That have not ended; true: ready.
  std::optional<CollectiveKey> running_;
  std::optional<CollectiveKey> newest_;  // That has begun.
};

}  // namespace skein::plans
