#include "plans/collectives/device_group_cache.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {

std::vector<uint64_t> DeviceGroupCache::add(FormedGroup group) {
  const uint64_t number = group.number;
  SKEIN_CHECK(!groups_.contains(number)) << "there is a group " << number << " already";
  groups_[number] = {std::move(group), 1, ++uses_};
  return shrink_to_bound();
}

void DeviceGroupCache::use(uint64_t number) {
  Entry& entry = groups_.at(number);
  ++entry.users;
  entry.used_last = ++uses_;
}

std::vector<uint64_t> DeviceGroupCache::release(uint64_t number, uint64_t operations) {
  const auto found = groups_.find(number);
  if (found == groups_.end()) return {};  // Dropped meanwhile.
  SKEIN_CHECK(found->second.users > 0) << "group " << number << " is not in use";
  --found->second.users;
  found->second.group.operations = operations;
  return shrink_to_bound();
}

void DeviceGroupCache::revoke(uint64_t number) {
  const auto found = groups_.find(number);
  if (found != groups_.end()) found->second.group.is_revoked = true;
}

void DeviceGroupCache::drop(uint64_t number) { groups_.erase(number); }

std::vector<FormedGroup> DeviceGroupCache::offer() const {
  std::vector<FormedGroup> offered;
  for (const auto& [number, entry] : groups_) {
    if (entry.users == 0) offered.push_back(entry.group);
  }
  return offered;
}

std::vector<uint64_t> DeviceGroupCache::shrink_to_bound() {
  std::vector<uint64_t> evicted;
  while (groups_.size() > groups_max_) {
    auto oldest = groups_.end();
    for (auto each = groups_.begin(); each != groups_.end(); ++each) {
      if (each->second.users > 0) continue;
      if (oldest == groups_.end() || each->second.used_last < oldest->second.used_last) {
        oldest = each;
      }
    }
    if (oldest == groups_.end()) break;
    evicted.push_back(oldest->first);
    groups_.erase(oldest);
  }
  return evicted;
}

}  // namespace skein::plans
