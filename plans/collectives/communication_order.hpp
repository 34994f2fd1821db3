#pragma once

#include <compare>
#include <cstdint>
#include <map>

#include "plans/base/ids.hpp"
#include "plans/plan/plan_part.hpp"

namespace skein::plans {

/// Rows of a micro-batch on their way between replicas of neighbouring stages: an activation to the
/// stage behind, or its gradient to the stage before.
struct TransferId {
  ReplicaId from;
  ReplicaId to;
  int32_t microbatch = 0;
  auto operator<=>(const TransferId&) const = default;
};

/// Where everything that one device does with others in a step stands in one order: the places of
/// `CollectiveKey`.
struct CommunicationPlaces {
  std::map<GroupId, uint64_t> groups;  // The sum of each group; buckets follow one another.
  std::map<TransferId, uint64_t> transfers;
};

/// The order in which a device of a plan sends, receives and adds up, so that `CollectiveOrder`
/// keeps the devices from waiting for each other for ever, also when a send waits inside for its
/// receiver.
///
/// That needs one order on all devices, of which each keeps its own operations, and more: an
/// operation must become ready on each of its members by what comes before it in the order alone. A
/// transfer is ready when its action has run, which takes that action's inputs and those of all
/// actions before it in the list of its rank. So the order is that of `action_ends`: all that an
/// action needs has ended before it begins. A sum is ready when the last action of each of its
/// members has run, and stands behind the last of these. What is left decides between operations of
/// one time, alike for all who take part.
///
/// Then, whatever the real times are, the least operation that has not ended is next on all of its
/// members; what makes it ready waits for ended operations and for computing only. It begins on
/// all, and ends. So there is no deadlock, whoever is late. The receiver needs memory for it: that
/// must not wait for a later operation. As all of a step's operations end before its commit, orders
/// of steps follow one another.
///
/// The coordinator tells all devices the same ends. The times that these are made of only decide
/// how long a device is kept from what is ready: the nearer to the real ones, the less.
///
/// What goes by way of the hosts keeps its place, which nobody waits for.
/// The part is valid, and has the ends of its stages. Cost  O(transfers * log).
CommunicationPlaces communication_places(const PlanPart& part, WorkerId worker);

}  // namespace skein::plans
