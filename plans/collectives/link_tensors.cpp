#include "plans/collectives/link_tensors.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

std::vector<PassingTensor> passing_tensors(const PlanPart& part, const CommunicationPlaces& places,
                                           int32_t front, ReplicaId own) {
  const int32_t stage = stage_of(part, own);
  SKEIN_CHECK(stage == front || stage == front + 1)
      << "stage " << stage << " is no end of the link behind stage " << front;
  const bool is_front = stage == front;
  const std::vector<Route> routes = routes_from(part, own, is_front ? +1 : -1);
  auto place_of = [&](const Route& route, bool is_sent, int32_t microbatch) {
    return places.transfers.at(is_sent ? TransferId{own, route.to, microbatch}
                                       : TransferId{route.to, own, microbatch});
  };
  std::vector<uint64_t> order;
  for (int32_t m = 0; m < part.microbatch_count; ++m) {
    for (const Route& route : routes) {
      for (bool is_sent : {false, true}) order.push_back(place_of(route, is_sent, m));
    }
  }
  std::sort(order.begin(), order.end());
  std::map<uint64_t, size_t> position;
  for (size_t i = 0; i < order.size(); ++i) position[order[i]] = i;

  std::vector<PassingTensor> passing;
  for (size_t i = 0; i < part.actions.size(); ++i) {
    const Action& action = part.actions[i];
    if (action.stage != stage || action.type == ActionType::kBackwardWeight) continue;
    PassingTensor tensor;
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

/// What holds while transfer `begun` of a link runs, and those before it have ended. Neither number
/// falls from one transfer to the next.
struct Progress {
  std::vector<size_t> ended;      // [begun] So many actions have at least.
  std::vector<size_t> submitted;  // [begun] So many are given to the device at most.
};

Progress progress_of(const std::vector<PassingTensor>& passing, size_t places) {
  size_t actions = 0;
  for (const PassingTensor& each : passing) actions = std::max(actions, each.action + 1);
  Progress progress{std::vector<size_t>(places, 0), std::vector<size_t>(places, actions)};
  for (const PassingTensor& each : passing) {
    size_t& ended = progress.ended[each.first];
    size_t& submitted = progress.submitted[each.last];
    if (each.is_sent) {
      ended = std::max(ended, each.action + 1);
    } else {
      submitted = std::min(submitted, each.action);
    }
  }
  for (size_t begun = 1; begun < places; ++begun) {
    progress.ended[begun] = std::max(progress.ended[begun], progress.ended[begun - 1]);
    const size_t earlier = places - 1 - begun;
    progress.submitted[earlier] =
        std::min(progress.submitted[earlier], progress.submitted[earlier + 1]);
  }
  return progress;
}

/// The first transfer by which more than `action` actions are counted; where none is, behind all.
size_t first_beyond(const std::vector<size_t>& counts, size_t action) {
  const auto found = std::upper_bound(counts.begin(), counts.end(), action);
  return static_cast<size_t>(found - counts.begin());
}

}  // namespace

int64_t held_max(const std::vector<PassingTensor>& passing) {
  size_t places = 1;  // One more than transfers: behind the last one, its tensor is still held.
  for (const PassingTensor& each : passing) {
    SKEIN_CHECK(each.first <= each.last) << "rows pass from " << each.first << " to " << each.last;
    places = std::max(places, each.last + 2);
  }
  const Progress progress = progress_of(passing, places);
  std::vector<int64_t> change(places + 1, 0);  // [begun] Tensors held, less those of one before.
  for (const PassingTensor& each : passing) {
    const size_t from = each.is_sent ? first_beyond(progress.submitted, each.action) : each.first;
    const size_t until = each.is_sent ? each.last + 2 : first_beyond(progress.ended, each.action);
    if (from >= until) continue;
    ++change[from];
    --change[until];
  }
  int64_t held = 0, most = 0;
  for (const int64_t each : change) {
    held += each;
    most = std::max(most, held);
  }
  return most;
}

int64_t link_tensors_max(const PlanPart& part, const CommunicationPlaces& places, int32_t front,
                         ReplicaId own) {
  return held_max(passing_tensors(part, places, front, own));
}

}  // namespace skein::plans
