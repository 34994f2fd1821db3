#include "plans/collectives/link_tensors.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

/// A tensor that passes over the link: where its action stands in the list, and its first and last
/// rows among the link's transfers.
struct Passing {
  bool is_sent = false;
  size_t action = 0;
  size_t first = 0;
  size_t last = 0;
};

std::vector<Passing> passing_tensors(const Plan& plan, const CommunicationPlaces& places,
                                     int32_t front, ReplicaId own) {
  const int32_t stage = stage_of(plan, own);
  SKEIN_CHECK(stage == front || stage == front + 1)
      << "stage " << stage << " is no end of the link behind stage " << front;
  const bool is_front = stage == front;
  const std::vector<Route> routes = routes_from(plan, own, is_front ? +1 : -1);
  auto place_of = [&](const Route& route, bool is_sent, int32_t microbatch) {
    return places.transfers.at(is_sent ? TransferId{own, route.to, microbatch}
                                       : TransferId{route.to, own, microbatch});
  };
  std::vector<uint64_t> order;
  for (int32_t m = 0; m < plan.microbatch_count; ++m) {
    for (const Route& route : routes) {
      for (bool is_sent : {false, true}) order.push_back(place_of(route, is_sent, m));
    }
  }
  std::sort(order.begin(), order.end());
  std::map<uint64_t, size_t> position;
  for (size_t i = 0; i < order.size(); ++i) position[order[i]] = i;

  const ActionList& actions =
      plan.actions[static_cast<size_t>(plan.stages[static_cast<size_t>(stage)].rank())];
  std::vector<Passing> passing;
  for (size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    if (action.stage != stage || action.type == ActionType::kBackwardWeight) continue;
    Passing tensor;
    tensor.is_sent = (action.type == ActionType::kForward) == is_front;
    tensor.action = i;
    tensor.first = order.size();
    for (const Route& route : routes) {
      const size_t at = position.at(place_of(route, tensor.is_sent, action.microbatch));
      tensor.first = std::min(tensor.first, at);
      tensor.last = std::max(tensor.last, at);
    }
    passing.push_back(tensor);
  }
  return passing;
}

/// While transfer `begun` of the link runs, and those before it have ended.
int64_t held_at(const std::vector<Passing>& passing, size_t action_count, size_t begun) {
  size_t ended = 0;                 // So many actions have at least.
  size_t submitted = action_count;  // So many are given to the device at most.
  for (const Passing& each : passing) {
    if (each.is_sent && each.first <= begun) ended = std::max(ended, each.action + 1);
    if (!each.is_sent && each.last >= begun) submitted = std::min(submitted, each.action);
  }
  int64_t held = 0;
  for (const Passing& each : passing) {
    const bool is_held = each.is_sent ? each.action < submitted && each.last + 1 >= begun
                                      : each.first <= begun && each.action >= ended;
    if (is_held) ++held;
  }
  return held;
}

}  // namespace

int64_t link_tensors_max(const Plan& plan, const CommunicationPlaces& places, int32_t front,
                         ReplicaId own) {
  const std::vector<Passing> passing = passing_tensors(plan, places, front, own);
  size_t transfers = 0, actions = 0;
  for (const Passing& each : passing) {
    transfers = std::max(transfers, each.last + 1);
    actions = std::max(actions, each.action + 1);
  }
  int64_t most = 0;
  for (size_t begun = 0; begun <= transfers; ++begun) {
    most = std::max(most, held_at(passing, actions, begun));
  }
  return most;
}

}  // namespace skein::plans
