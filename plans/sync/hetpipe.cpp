#include "plans/sync/hetpipe.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {

HetPipePolicy::HetPipePolicy(const PipelineLayout& layout, const HetPipeOptions& options,
                             uint64_t first_step)
    : ServerPolicy(layout), options_(options), waves_before_(layout.pipelines) {
  SKEIN_CHECK(options.wave > 0);
  for (uint32_t pipeline = 0; pipeline < layout.pipelines; ++pipeline) {
    join({pipeline, true, first_step});
  }
}

bool HetPipePolicy::is_wave_end(uint32_t stage, uint32_t pipeline) const {
  return (table_.steps(stage, pipeline) + 1) % options_.wave == 0;
}

uint64_t HetPipePolicy::waves(uint32_t stage, uint32_t pipeline) const {
  const uint64_t steps =
      table_.steps(stage, pipeline) + (table_.is_waiting(stage, pipeline) ? 1 : 0);
  return waves_before_[pipeline] + steps / options_.wave;
}

uint64_t HetPipePolicy::waves_min(uint32_t stage) const {
  uint64_t waves_min = UINT64_MAX;
  for (uint32_t pipeline = 0; pipeline < table_.layout().pipelines; ++pipeline) {
    if (table_.is_live(pipeline)) waves_min = std::min(waves_min, waves(stage, pipeline));
  }
  return table_.live_count() > 0 ? waves_min : 0;
}

bool HetPipePolicy::join(const MembershipChange& change) {
  uint64_t waves_before = 0;
  for (uint32_t stage = 0; stage < table_.layout().stages; ++stage) {
    waves_before = std::max(waves_before, waves_min(stage));
  }
  if (!table_.change(change)) return false;
  waves_before_[change.pipeline] = waves_before;
  versions_.join(change.pipeline);
  return true;
}

GroupDecisions HetPipePolicy::on_membership(const MembershipChange& change, uint64_t /*now_us*/) {
  GroupDecisions decisions;
  if (!(change.joins ? join(change) : table_.change(change))) return decisions;
  for (uint32_t stage = 0; stage < table_.layout().stages; ++stage) advance(stage, decisions);
  return decisions;
}

void HetPipePolicy::advance(uint32_t stage, GroupDecisions& decisions) {
  for (uint32_t pipeline = 0; pipeline < table_.layout().pipelines; ++pipeline) {
    if (!table_.is_live(pipeline) || !table_.is_waiting(stage, pipeline)) continue;
    if (is_wave_end(stage, pipeline)) continue;
    decisions.starts.push_back(table_.start(stage, {pipeline}, Average::kLocal, 1));
  }
  release(stage, decisions);
}

void HetPipePolicy::release(uint32_t stage, GroupDecisions& decisions) {
  const uint64_t slowest = waves_min(stage);
  std::vector<uint32_t> free;
  for (uint32_t pipeline = 0; pipeline < table_.layout().pipelines; ++pipeline) {
    if (!table_.is_live(pipeline) || !table_.is_waiting(stage, pipeline)) continue;
    if (waves(stage, pipeline) - slowest <= options_.distance) free.push_back(pipeline);
  }
  if (free.empty()) return;
  const double weight = options_.adds_whole_updates ? 1.0 : 1.0 / table_.live_count();
  GroupStart start = table_.start(stage, free, Average::kServer, weight);
  versions_.push(start, free.size());
  decisions.starts.push_back(std::move(start));
}

}  // namespace skein::plans
