#include "plans/sync/partial_reduce.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {

PartialReducePolicy::PartialReducePolicy(PipelineLayout layout, PartialReduceOptions options)
    : PeerPolicy(layout, options.decay),
      options_(options),
      planned_(roster_),
      components_(std::vector<bool>(layout.pipelines, true)) {
  SKEIN_CHECK(options.group_size >= 2) << options.group_size;
}

void PartialReducePolicy::on_joined(uint32_t pipeline, uint64_t /*now_us*/, Starts&) {
  components_.join(pipeline);
}

void PartialReducePolicy::on_left(uint32_t pipeline, uint64_t /*now_us*/, Starts& starts) {
  std::erase(waiting_, pipeline);
  components_.leave(pipeline);
  for (std::vector<uint32_t>& group : last_groups_) std::erase(group, pipeline);
  planned_.leave(pipeline, starts);
  form_groups(starts);  // Fewer may be enough now.
}

void PartialReducePolicy::on_waiting(ReplicaId replica, uint64_t /*now_us*/, Starts& starts) {
  const PipelineLayout& layout = roster_.layout();
  if (!planned_.is_idle(replica)) return planned_.arrive(replica, starts);
  if (layout.stage_of(replica) + 1 < layout.stages) return;  // Until the last stage has a group.
  waiting_.push_back(layout.pipeline_of(replica));
  form_groups(starts);
}

void PartialReducePolicy::form_groups(Starts& starts) {
  while (std::optional<std::vector<uint32_t>> group = next_group()) {
    for (const uint32_t pipeline : *group) std::erase(waiting_, pipeline);
    std::sort(group->begin(), group->end());
    remember(*group);
    planned_.plan(*group, starts);
  }
}

uint64_t PartialReducePolicy::connecting_count(uint32_t size) const {
  return (roster_.present_count() - 1 + size - 2) / (size - 1);
}

bool PartialReducePolicy::must_bridge(uint32_t size) const {
  if (size == 1 || components_.count() == 1) return false;
  const uint64_t groups =
      options_.guard == IsolationGuard::kLastGroups ? last_groups_.size() : groups_since_;
  return groups >= connecting_count(size);
}

/// The first P that wait; if they must bridge two components and do not, the last of them makes way
/// for the first one of another component.
std::optional<std::vector<uint32_t>> PartialReducePolicy::next_group() const {
  const uint32_t size = std::min(options_.group_size, roster_.present_count());
  if (size == 0 || waiting_.size() < size) return std::nullopt;
  std::vector<uint32_t> group(waiting_.begin(), waiting_.begin() + size);
  if (!must_bridge(size)) return group;
  const uint32_t component = components_.find(group[0]);
  const auto bridges = [&](uint32_t pipeline) { return components_.find(pipeline) != component; };
  if (std::any_of(group.begin(), group.end(), bridges)) return group;
  const auto bridge = std::find_if(waiting_.begin() + size, waiting_.end(), bridges);
  if (bridge == waiting_.end()) return std::nullopt;
  group.back() = *bridge;
  return group;
}

void PartialReducePolicy::remember(const std::vector<uint32_t>& group) {
  if (group.size() == 1) return;  // Who is alone has nobody to be connected to.
  if (options_.guard == IsolationGuard::kSinceConnected) {
    ++groups_since_;
    components_.connect(group);
    if (components_.count() > 1) return;
    components_.reset();
    groups_since_ = 0;
    return;
  }
  last_groups_.push_back(group);
  const uint64_t kept = connecting_count(static_cast<uint32_t>(group.size()));
  if (last_groups_.size() <= kept) return components_.connect(group);
  while (last_groups_.size() > kept) last_groups_.pop_front();
  components_.reset();
  for (const std::vector<uint32_t>& each : last_groups_) components_.connect(each);
}

}  // namespace skein::plans
