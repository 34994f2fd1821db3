#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "plans/base/ids.hpp"
#include "plans/plan/plan.hpp"

namespace skein::plans {

/// Rows of a micro-batch on their way between replicas of neighbouring stages: an activation to the
/// stage behind, or its gradient to the stage before.
struct TransferId {
  ReplicaId from;
  ReplicaId to;
  int32_t microbatch = 0;
  auto operator<=>(const TransferId&) const = default;
};

/// Where everything that the devices of a plan do together in a step stands in one order: the
/// places of `CollectiveKey`.
struct CommunicationPlaces {
  std::vector<uint64_t> groups;  // [groups] Of a group's sum; buckets follow one another.
  std::map<TransferId, uint64_t> transfers;
};

/// The order in which the devices of a plan send, receive and add up, so that `CollectiveOrder`
/// keeps them from waiting for each other for ever, also when a send waits inside for its receiver.
///
/// That needs more than one order on all devices: an operation must become ready on each of its
/// members by what comes before it in the order alone. A transfer is ready when its action has run,
/// which takes that action's inputs and those of all actions before it in the list of its rank. So
/// the order is that in which the actions end when the lists are executed, each with a time > 0 and
/// each behind its inputs: all that an action needs has ended before it begins. A sum is ready when
/// the last action of each of its members has run, and stands behind the last of these.
///
/// Then, whatever the real times are, the least operation that has not ended is next on all of its
/// members; what makes it ready waits for ended operations and for computing only. It begins on
/// all, and ends. So there is no deadlock, whoever is late. The receiver needs memory for it: that
/// must not wait for a later operation. As all of a step's operations end before its commit, orders
/// of steps follow one another.
///
/// The times are those of the plan's stages, which all devices are told alike; where one is not
/// known, 1 for all actions but B, which takes 2. They only decide how long a device is kept from
/// what is ready: the nearer to the real ones, the less.
///
/// What goes by way of the hosts keeps its place, which nobody waits for.
/// The plan is valid. Cost  O(actions * log + transfers).
CommunicationPlaces communication_places(const Plan& plan);

/// Two neighbouring stages on unlike workers, which pass on activations and their gradients.
struct StagePair {
  int32_t front = 0;
  GroupId group;  // The group of their devices; its id is behind those of the plan's own groups.
};
/// By ascending stage. Stages of one rank are on the same workers.
std::vector<StagePair> linked_stages(const Plan& plan);
/// Those of the stage in front, then those of the one behind; by replica.
std::vector<WorkerId> workers_of(const Plan& plan, const StagePair& pair);

}  // namespace skein::plans
