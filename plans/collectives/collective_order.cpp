#include "plans/collectives/collective_order.hpp"

#include "plans/base/check.hpp"

namespace skein::plans {

void CollectiveOrder::expect(const CollectiveKey& key) {
  SKEIN_CHECK(!newest_ || *newest_ < key)
      << "an operation of step " << key.step << " comes behind step " << newest_->step;
  expected_.emplace(key, false);
}

std::optional<CollectiveKey> CollectiveOrder::on_ready(const CollectiveKey& key) {
  const auto found = expected_.find(key);
  if (found == expected_.end()) return std::nullopt;
  found->second = true;
  return begin_next();
}

std::optional<CollectiveKey> CollectiveOrder::on_end(const CollectiveKey& key) {
  if (running_ != key) return std::nullopt;
  running_.reset();
  expected_.erase(key);
  return begin_next();
}

std::optional<CollectiveKey> CollectiveOrder::begin_next() {
  if (running_ || expected_.empty() || !expected_.begin()->second) return std::nullopt;
  running_ = newest_ = expected_.begin()->first;
  return running_;
}

}  // namespace skein::plans
