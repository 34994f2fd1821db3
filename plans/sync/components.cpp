#include "plans/sync/components.hpp"

#include <utility>

namespace skein::plans {

Components::Components(std::vector<bool> present)
    : present_(std::move(present)), node_of_(present_.size()) {
  reset();
}

void Components::reset() {
  parent_.resize(present_.size());
  weight_.resize(present_.size());
  count_ = 0;
  for (uint32_t pipeline = 0; pipeline < present_.size(); ++pipeline) {
    node_of_[pipeline] = parent_[pipeline] = pipeline;
    weight_[pipeline] = present_[pipeline] ? 1 : 0;
    count_ += weight_[pipeline];
  }
}

uint32_t Components::root(uint32_t node) const {
  while (parent_[node] != node) node = parent_[node] = parent_[parent_[node]];
  return node;
}

uint32_t Components::find(uint32_t pipeline) const { return root(node_of_[pipeline]); }

void Components::connect(std::span<const uint32_t> pipelines) {
  for (size_t i = 1; i < pipelines.size(); ++i) {
    uint32_t a = find(pipelines[0]), b = find(pipelines[i]);
    if (a == b) continue;
    if (weight_[a] < weight_[b]) std::swap(a, b);
    parent_[b] = a;
    weight_[a] += weight_[b];
    --count_;
  }
}

void Components::leave(uint32_t pipeline) {
  present_[pipeline] = false;
  if (--weight_[find(pipeline)] == 0) --count_;
}

void Components::join(uint32_t pipeline) {
  if (parent_.size() >= 4 * present_.size()) compact();
  present_[pipeline] = true;
  node_of_[pipeline] = static_cast<uint32_t>(parent_.size());
  parent_.push_back(node_of_[pipeline]);
  weight_.push_back(1);
  ++count_;
}

/// Drops the nodes of pipeline replicas that have left.
void Components::compact() {
  std::vector<uint32_t> roots;  // [pipeline replicas]
  for (uint32_t pipeline = 0; pipeline < present_.size(); ++pipeline)
    roots.push_back(find(pipeline));
  std::vector<uint32_t> first(parent_.size(),
                              UINT32_MAX);  // [nodes], of roots: a pipeline replica in it.
  reset();
  for (uint32_t pipeline = 0; pipeline < present_.size(); ++pipeline) {
    if (!present_[pipeline]) continue;
    uint32_t& representative = first[roots[pipeline]];
    if (representative == UINT32_MAX) representative = pipeline;
    const uint32_t pair[] = {representative, pipeline};
    connect(pair);
  }
}

}  // namespace skein::plans
