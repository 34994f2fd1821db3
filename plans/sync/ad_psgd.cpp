#include "plans/sync/ad_psgd.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace skein::plans {

AdPsgdPolicy::AdPsgdPolicy(PipelineLayout layout, uint64_t seed)
    : PeerPolicy(layout),
      stages_(layout.stages),
      is_nonblocking_(layout.pipelines),
      rng_(seed, random_stream("adpsgd", 6)) {
  Starts none;
  take_sides(0, none);
}

void AdPsgdPolicy::on_waiting(ReplicaId replica, uint64_t /*now_us*/, Starts& starts) {
  if (is_nonblocking_[roster_.layout().pipeline_of(replica)] || !has_nonblocking_) {
    starts.push_back(roster_.start(std::span(&replica, 1)));
    return;
  }
  Stage& stage = stages_[roster_.layout().stage_of(replica)];
  if (stage.nonblocking.empty()) {
    stage.active.push_back(replica);
  } else {
    start_pair(replica, starts);
  }
}

/// With a random non-blocking replica that is free; there is one.
void AdPsgdPolicy::start_pair(ReplicaId active, Starts& starts) {
  std::vector<ReplicaId>& nonblocking = stages_[roster_.layout().stage_of(active)].nonblocking;
  std::swap(nonblocking[rng_.below(nonblocking.size())], nonblocking.back());
  std::array<ReplicaId, 2> pair = {std::min(active, nonblocking.back()),
                                   std::max(active, nonblocking.back())};
  nonblocking.pop_back();
  starts.push_back(roster_.start(pair));
}

void AdPsgdPolicy::on_free(ReplicaId replica, uint64_t /*now_us*/, Starts& starts) {
  if (!is_nonblocking_[roster_.layout().pipeline_of(replica)]) return;
  Stage& stage = stages_[roster_.layout().stage_of(replica)];
  stage.nonblocking.push_back(replica);
  if (stage.active.empty()) return;
  const ReplicaId first = stage.active.front();
  stage.active.pop_front();
  start_pair(first, starts);
}

void AdPsgdPolicy::on_joined(uint32_t, uint64_t now_us, Starts& starts) {
  take_sides(now_us, starts);
}

void AdPsgdPolicy::on_left(uint32_t, uint64_t now_us, Starts& starts) {
  take_sides(now_us, starts);
}

/// Whoever waited as an active one may be non-blocking now, and the other way round: they come
/// anew.
void AdPsgdPolicy::take_sides(uint64_t now_us, Starts& starts) {
  const PipelineLayout& layout = roster_.layout();
  uint32_t rank = 0;
  for (uint32_t pipeline = 0; pipeline < layout.pipelines; ++pipeline) {
    is_nonblocking_[pipeline] = roster_.is_present(pipeline) && rank++ % 2 == 1;
  }
  has_nonblocking_ = rank > 1;
  for (uint32_t s = 0; s < layout.stages; ++s) {
    Stage& stage = stages_[s];
    const std::deque<ReplicaId> waiting = std::exchange(stage.active, {});
    stage.nonblocking.clear();
    for (uint32_t pipeline = 0; pipeline < layout.pipelines; ++pipeline) {
      const ReplicaId replica = layout.replica(s, pipeline);
      const bool is_taken = roster_.is_waiting(replica);  // It comes anew below.
      if (is_nonblocking_[pipeline] && roster_.is_free(replica) && !is_taken) {
        stage.nonblocking.push_back(replica);
      }
    }
    for (const ReplicaId replica : waiting) {
      if (!roster_.is_waiting(replica)) continue;  // It has left.
      on_waiting(replica, now_us, starts);
      if (is_nonblocking_[layout.pipeline_of(replica)]) on_free(replica, now_us, starts);
    }
  }
}

}  // namespace skein::plans
