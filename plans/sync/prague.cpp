#include "plans/sync/prague.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {

PraguePolicy::PraguePolicy(PipelineLayout layout, PragueOptions options)
    : PeerPolicy(layout),
      options_(options),
      planned_(roster_),
      head_starts_(layout.pipelines),
      rng_(options.seed, random_stream("prague", 6)) {
  SKEIN_CHECK(options.group_size >= 2) << options.group_size;
}

/// A joiner counts as the most advanced one, or it would be taken for a slow one.
void PraguePolicy::on_joined(uint32_t joined, uint64_t /*now_us*/, Starts&) {
  uint64_t most = 0;
  for (uint32_t pipeline = 0; pipeline < roster_.layout().pipelines; ++pipeline) {
    if (pipeline == joined || !roster_.is_present(pipeline)) continue;
    most = std::max(most, progress(pipeline));
  }
  head_starts_[joined] = most;
}

void PraguePolicy::on_left(uint32_t pipeline, uint64_t /*now_us*/, Starts& starts) {
  planned_.leave(pipeline, starts);
}

uint64_t PraguePolicy::progress(uint32_t pipeline) const {
  return head_starts_[pipeline] + planned_.planned_count(pipeline);
}

void PraguePolicy::on_waiting(ReplicaId replica, uint64_t /*now_us*/, Starts& starts) {
  if (planned_.is_idle(replica)) return divide(replica, starts);
  planned_.arrive(replica, starts);
}

void PraguePolicy::divide(ReplicaId asking, Starts& starts) {
  const PipelineLayout& layout = roster_.layout();
  const uint32_t stage = layout.stage_of(asking), self = layout.pipeline_of(asking);
  std::vector<uint32_t> idle = {
      self};  // The first group is that of the pipeline replica that asks.
  for (uint32_t pipeline = 0; pipeline < layout.pipelines; ++pipeline) {
    const bool lags = progress(pipeline) + options_.lag_max < progress(self);
    if (pipeline == self || !roster_.is_present(pipeline) || lags) continue;
    if (planned_.is_idle(layout.replica(stage, pipeline))) idle.push_back(pipeline);
  }
  for (size_t i = idle.size(); i > 2; --i) std::swap(idle[i - 1], idle[1 + rng_.below(i - 1)]);
  for (size_t begin = 0; begin < idle.size(); begin += options_.group_size) {
    const size_t end = std::min<size_t>(begin + options_.group_size, idle.size());
    if (begin > 0 && end - begin == 1) break;
    std::vector<uint32_t> group(idle.begin() + static_cast<ptrdiff_t>(begin),
                                idle.begin() + static_cast<ptrdiff_t>(end));
    std::sort(group.begin(), group.end());
    planned_.plan(group, starts);
  }
}

}  // namespace skein::plans
