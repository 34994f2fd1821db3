#include "plans/sync/paired_rounds.hpp"

#include <algorithm>
#include <utility>

namespace skein::plans {

PairedRoundsPolicy::PairedRoundsPolicy(PipelineLayout layout, uint64_t seed)
    : PeerPolicy(layout), planned_(roster_), rng_(seed, random_stream("pairs", 5)) {}

void PairedRoundsPolicy::on_joined(uint32_t, uint64_t /*now_us*/, Starts&) {}

void PairedRoundsPolicy::on_left(uint32_t pipeline, uint64_t /*now_us*/, Starts& starts) {
  planned_.leave(pipeline, starts);
}

/// Whoever comes first to a round that has not been drawn draws it for everybody, so all lists have
/// the same rounds.
void PairedRoundsPolicy::on_waiting(ReplicaId replica, uint64_t /*now_us*/, Starts& starts) {
  if (planned_.is_idle(replica)) return draw_round(starts);
  planned_.arrive(replica, starts);
}

void PairedRoundsPolicy::draw_round(Starts& starts) {
  std::vector<uint32_t> order;
  for (uint32_t pipeline = 0; pipeline < roster_.layout().pipelines; ++pipeline) {
    if (roster_.is_present(pipeline)) order.push_back(pipeline);
  }
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng_.below(i)]);
  for (size_t i = 0; i < order.size(); i += 2) {
    std::vector<uint32_t> pair = {order[i]};
    if (i + 1 < order.size()) pair.push_back(order[i + 1]);
    std::sort(pair.begin(), pair.end());
    planned_.plan(pair, starts);
  }
}

}  // namespace skein::plans
