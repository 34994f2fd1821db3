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
  for (uint32_t column = 0; column < present_.size(); ++column) {
    node_of_[column] = parent_[column] = column;
    weight_[column] = present_[column] ? 1 : 0;
    count_ += weight_[column];
  }
}

uint32_t Components::root(uint32_t node) const {
  while (parent_[node] != node) node = parent_[node] = parent_[parent_[node]];
  return node;
}

uint32_t Components::find(uint32_t column) const { return root(node_of_[column]); }

void Components::connect(std::span<const uint32_t> columns) {
  for (size_t i = 1; i < columns.size(); ++i) {
    uint32_t a = find(columns[0]), b = find(columns[i]);
    if (a == b) continue;
    if (weight_[a] < weight_[b]) std::swap(a, b);
    parent_[b] = a;
    weight_[a] += weight_[b];
    --count_;
  }
}

void Components::leave(uint32_t column) {
  present_[column] = false;
  if (--weight_[find(column)] == 0) --count_;
}

void Components::join(uint32_t column) {
  if (parent_.size() >= 4 * present_.size()) compact();
  present_[column] = true;
  node_of_[column] = static_cast<uint32_t>(parent_.size());
  parent_.push_back(node_of_[column]);
  weight_.push_back(1);
  ++count_;
}

/// Drops the nodes of columns that have left.
void Components::compact() {
  std::vector<uint32_t> roots;  // [columns]
  for (uint32_t column = 0; column < present_.size(); ++column) roots.push_back(find(column));
  std::vector<uint32_t> first(parent_.size(), UINT32_MAX);  // [nodes], of roots: a column in it.
  reset();
  for (uint32_t column = 0; column < present_.size(); ++column) {
    if (!present_[column]) continue;
    uint32_t& representative = first[roots[column]];
    if (representative == UINT32_MAX) representative = column;
    const uint32_t pair[] = {representative, column};
    connect(pair);
  }
}

}  // namespace skein::plans
