#include "plans/collectives/communication_order.hpp"

#include <algorithm>
#include <vector>

namespace skein::plans {
namespace {

/// An operation of the step, in the order of its members: when it is ready, then transfers before
/// sums, as the next stage waits for them; what is left decides between those of one time.
struct Operation {
  uint64_t ready = 0;
  bool is_sum = false;
  GroupId group;
  TransferId transfer;
  auto operator<=>(const Operation&) const = default;
};

/// What the replica sends to the stage `step` away, and what it gets from there.
void add_transfers(const PlanPart& part, ReplicaId own, int step,
                   std::vector<Operation>& operations) {
  const int32_t stage = stage_of(part, own);
  for (const Route& route : routes_from(part, own, step)) {
    const StageEnds& sent = stage_at(part, stage).ends;
    const StageEnds& received = stage_at(part, stage + step).ends;
    for (int32_t m = 0; m < part.microbatch_count; ++m) {
      const auto microbatch = static_cast<size_t>(m);
      const uint64_t forward = (step > 0 ? sent : received).forward[microbatch];
      const uint64_t backward = (step > 0 ? received : sent).backward[microbatch];
      operations.push_back({step > 0 ? forward : backward, false, {}, {own, route.to, m}});
      operations.push_back({step > 0 ? backward : forward, false, {}, {route.to, own, m}});
    }
  }
}

uint64_t sum_is_ready(const PlanPart& part, const GroupPart& group) {
  if (group.scope == GroupScope::kTied) {
    return std::max(stage_at(part, 0).ends.last, stage_at(part, part.stage_count - 1).ends.last);
  }
  return stage_at(part, stage_of(part, group.member)).ends.last;
}

}  // namespace

CommunicationPlaces communication_places(const PlanPart& part, WorkerId worker) {
  std::vector<Operation> operations;
  for (const ReplicaPlan& own : hosted_by(part, worker)) {
    for (int step : {+1, -1}) add_transfers(part, own.id, step, operations);
  }
  for (const GroupPart& group : part.groups) {
    operations.push_back({sum_is_ready(part, group), true, group.id, {}});
  }
  std::sort(operations.begin(), operations.end());
  // Both ends of a transfer may be the worker's.
  operations.erase(std::unique(operations.begin(), operations.end()), operations.end());
  CommunicationPlaces places;
  for (size_t place = 0; place < operations.size(); ++place) {
    const Operation& operation = operations[place];
    if (operation.is_sum) {
      places.groups[operation.group] = place;
    } else {
      places.transfers[operation.transfer] = place;
    }
  }
  return places;
}

}  // namespace skein::plans
