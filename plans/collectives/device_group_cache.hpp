#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace skein::plans {

/// A group of devices that has been formed and may be used again.
struct FormedGroup {
  uint64_t number = 0;      // The same on all members, never given out twice.
  uint32_t rank = 0;        // This member's: as numbers of workers ascend.
  uint32_t rank_count = 0;  // >= 2
  uint64_t operations = 0;  // That this member has done in it.
  /// What ran in it was stopped: nothing can be done in it, but groups can be made of it.
  bool is_revoked = false;
  bool operator==(const FormedGroup&) const = default;
};

/// The groups that a worker keeps formed, as forming one anew takes long. Each takes memory,
/// threads and connections, so there is a bound: past it, the ones go that were used longest ago.
/// A group in use never goes, so there are more while more are in use.
class DeviceGroupCache {
 public:
  explicit DeviceGroupCache(size_t groups_max) : groups_max_(groups_max) {}

  /// A group was formed, and is in use. Returns the numbers of those to be given up for it.
  std::vector<uint64_t> add(FormedGroup group);
  /// One that is kept is used (again), by one user more.
  void use(uint64_t number);
  /// One of its users ends, after so many operations. Returns the numbers of those to be given up.
  std::vector<uint64_t> release(uint64_t number, uint64_t operations);
  /// What ran in the group was stopped. Its users still have to release it.
  void revoke(uint64_t number);
  /// The group is broken: it was aborted, or one of its operations failed. It is known no more.
  void drop(uint64_t number);

  /// What may be used: groups that nothing is under way in, by ascending number.
  std::vector<FormedGroup> offer() const;
  bool contains(uint64_t number) const { return groups_.contains(number); }
  size_t size() const { return groups_.size(); }

 private:
  struct Entry {
    FormedGroup group;
    int users = 0;
    uint64_t used_last = 0;  // Counts uses of the whole cache: no clock, and no ties.
  };
  std::vector<uint64_t> shrink_to_bound();

  size_t groups_max_;
  uint64_t uses_ = 0;
  std::map<uint64_t, Entry> groups_;
};

}  // namespace skein::plans
