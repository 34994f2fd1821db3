#include "actors/collectives/device_group_store.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::actors {

std::vector<plans::FormedGroup> DeviceGroupStore::offer() const {
  std::lock_guard lock(mutex_);
  return cache_.offer();
}

std::shared_ptr<gpu::DeviceGroup> DeviceGroupStore::use(uint64_t number) {
  std::lock_guard lock(mutex_);
  const auto found = groups_.find(number);
  if (found == groups_.end()) return nullptr;
  cache_.use(number);
  return found->second;
}

void DeviceGroupStore::add(plans::FormedGroup group, std::shared_ptr<gpu::DeviceGroup> members,
                           std::shared_ptr<gpu::Device> device) {
  std::lock_guard lock(mutex_);
  device_ = std::move(device);
  groups_[group.number] = std::move(members);
  give_up(cache_.add(group));
}

void DeviceGroupStore::release(uint64_t number) {
  std::lock_guard lock(mutex_);
  const auto found = groups_.find(number);
  if (found == groups_.end()) return;
  if (found->second->is_broken()) {
    cache_.drop(number);
    give_up({number});
  } else {
    give_up(cache_.release(number, found->second->operations()));
  }
}

void DeviceGroupStore::release_revoked(uint64_t number) {
  std::lock_guard lock(mutex_);
  const auto found = groups_.find(number);
  if (found == groups_.end()) return;
  if (found->second->rank_count() < 3) {  // Nothing can be made of it.
    cache_.drop(number);
    return give_up({number});
  }
  cache_.revoke(number);
  give_up(cache_.release(number, found->second->operations()));
}

void DeviceGroupStore::end(uint64_t number) {
  std::lock_guard lock(mutex_);
  cache_.drop(number);
  groups_.erase(number);
}

std::shared_ptr<gpu::DeviceGroup> DeviceGroupStore::take(uint64_t number,
                                                         plans::FormedGroup& group) {
  std::lock_guard lock(mutex_);
  const std::vector<plans::FormedGroup> free = cache_.offer();
  const auto found = std::find_if(free.begin(), free.end(),
                                  [&](const auto& each) { return each.number == number; });
  if (found == free.end()) return nullptr;
  group = *found;
  cache_.drop(number);
  return std::move(groups_.extract(number).mapped());
}

void DeviceGroupStore::give_up(std::shared_ptr<gpu::DeviceGroup> members) {
  std::lock_guard lock(mutex_);
  if (members != nullptr) given_up_.push_back(std::move(members));
}

void DeviceGroupStore::keep_only(const std::set<uint64_t>& numbers) {
  std::lock_guard lock(mutex_);
  for (const plans::FormedGroup& group : cache_.offer()) {
    if (numbers.contains(group.number)) continue;
    cache_.drop(group.number);
    give_up({group.number});
  }
}

void DeviceGroupStore::on_formed(const absl::Status& status) {
  std::lock_guard lock(mutex_);
  failures_ = status.ok() ? 0 : failures_ + 1;
  last_failure_ = std::string(status.message());
}

std::string DeviceGroupStore::peer_failure() const {
  std::lock_guard lock(mutex_);
  if (failures_ < kFailuresMax) return "";
  return absl::StrCat("forming failed ", failures_, " times, the last time with: ", last_failure_);
}

void DeviceGroupStore::end_given_up() {
  std::vector<std::shared_ptr<gpu::DeviceGroup>> ended;
  std::lock_guard lock(mutex_);
  ended.swap(given_up_);  // Destroyed behind the lock.
}

void DeviceGroupStore::give_up(const std::vector<uint64_t>& numbers) {
  for (uint64_t number : numbers) {
    auto node = groups_.extract(number);
    if (!node.empty()) given_up_.push_back(std::move(node.mapped()));
  }
}

}  // namespace skein::actors
