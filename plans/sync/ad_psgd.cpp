#include "plans/sync/ad_psgd.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace skein::plans {

AdPsgdPolicy::AdPsgdPolicy(ColumnLayout layout, uint64_t seed)
    : PeerPolicy(layout),
      stages_(layout.stages),
      is_passive_(layout.columns),
      rng_(seed, random_stream("adpsgd", 6)) {
  Starts none;
  take_sides(0, none);
}

void AdPsgdPolicy::on_waiting(ReplicaId replica, uint64_t /*now_us*/, Starts& starts) {
  if (is_passive_[roster_.layout().column_of(replica)] || !has_passive_) {
    starts.push_back(roster_.start(std::span(&replica, 1)));
    return;
  }
  Stage& stage = stages_[roster_.layout().stage_of(replica)];
  if (stage.passive.empty()) {
    stage.active.push_back(replica);
  } else {
    start_pair(replica, starts);
  }
}

/// With a random passive replica that is free; there is one.
void AdPsgdPolicy::start_pair(ReplicaId active, Starts& starts) {
  std::vector<ReplicaId>& passive = stages_[roster_.layout().stage_of(active)].passive;
  std::swap(passive[rng_.below(passive.size())], passive.back());
  std::array<ReplicaId, 2> pair = {std::min(active, passive.back()),
                                   std::max(active, passive.back())};
  passive.pop_back();
  starts.push_back(roster_.start(pair));
}

void AdPsgdPolicy::on_free(ReplicaId replica, uint64_t /*now_us*/, Starts& starts) {
  if (!is_passive_[roster_.layout().column_of(replica)]) return;
  Stage& stage = stages_[roster_.layout().stage_of(replica)];
  stage.passive.push_back(replica);
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

/// Whoever waited as an active one may be passive now, and the other way round: they come anew.
void AdPsgdPolicy::take_sides(uint64_t now_us, Starts& starts) {
  const ColumnLayout& layout = roster_.layout();
  uint32_t rank = 0;
  for (uint32_t column = 0; column < layout.columns; ++column) {
    is_passive_[column] = roster_.is_present(column) && rank++ % 2 == 1;
  }
  has_passive_ = rank > 1;
  for (uint32_t s = 0; s < layout.stages; ++s) {
    Stage& stage = stages_[s];
    const std::deque<ReplicaId> waiting = std::exchange(stage.active, {});
    stage.passive.clear();
    for (uint32_t column = 0; column < layout.columns; ++column) {
      const ReplicaId replica = layout.replica(s, column);
      const bool is_taken = roster_.is_waiting(replica);  // It comes anew below.
      if (is_passive_[column] && roster_.is_free(replica) && !is_taken) {
        stage.passive.push_back(replica);
      }
    }
    for (const ReplicaId replica : waiting) {
      if (!roster_.is_waiting(replica)) continue;  // It has left.
      on_waiting(replica, now_us, starts);
      if (is_passive_[layout.column_of(replica)]) on_free(replica, now_us, starts);
    }
  }
}

}  // namespace skein::plans
