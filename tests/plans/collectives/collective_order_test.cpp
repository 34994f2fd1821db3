#include "plans/collectives/collective_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

/// Devices whose collectives wait for each other: an operation ends when all members have begun it.
class World {
 public:
  /// `members` [operations] bit masks of devices; the operation's place is its position.
  World(std::vector<uint32_t> members, size_t device_count, bool ordered)
      : members_(std::move(members)), ordered_(ordered), devices_(device_count) {
    for (size_t i = 0; i < members_.size(); ++i) {
      for (size_t device = 0; device < device_count; ++device) {
        if (is_member(device, i)) devices_[device].order.expect(key(i));
      }
    }
  }

  static CollectiveKey key(size_t operation) { return {0, operation, 0}; }
  bool is_member(size_t device, size_t operation) const {
    return (members_[operation] >> device & 1) != 0;
  }

  void on_ready(size_t device, size_t operation) {
    if (ordered_) {
      begin(device, devices_[device].order.on_ready(key(operation)));
    } else {
      devices_[device].waiting.push_back(operation);  // First come, first served.
      if (!devices_[device].running) begin_next(device);
    }
  }

  bool is_done() const { return ended_.size() == members_.size(); }
  const std::vector<size_t>& ended() const { return ended_; }

 private:
  struct Device {
    CollectiveOrder order;
    std::vector<size_t> waiting;
    std::optional<size_t> running;
  };

  void begin_next(size_t device) {
    Device& self = devices_[device];
    if (self.waiting.empty()) return;
    const size_t next = self.waiting.front();
    self.waiting.erase(self.waiting.begin());
    begin(device, key(next));
  }

  void begin(size_t device, const std::optional<CollectiveKey>& begun) {
    if (!begun) return;
    const size_t operation = begun->place;
    EXPECT_FALSE(devices_[device].running) << "one at a time";
    devices_[device].running = operation;
    for (size_t each = 0; each < devices_.size(); ++each) {
      if (is_member(each, operation) && devices_[each].running != operation) return;
    }
    ended_.push_back(operation);
    for (size_t each = 0; each < devices_.size(); ++each) {
      if (is_member(each, operation)) devices_[each].running.reset();
    }
    for (size_t each = 0; each < devices_.size(); ++each) {
      if (!is_member(each, operation)) continue;
      if (ordered_) {
        begin(each, devices_[each].order.on_end(key(operation)));
      } else if (!devices_[each].running) {
        begin_next(each);
      }
    }
  }

  std::vector<uint32_t> members_;
  bool ordered_;
  std::vector<Device> devices_;
  std::vector<size_t> ended_;
};

/// Whether all operations end when they become ready in this order.
bool all_end(const std::vector<uint32_t>& members, size_t devices, bool ordered,
             const std::vector<std::pair<size_t, size_t>>& arrivals) {
  World world(members, devices, ordered);
  for (const auto& [device, operation] : arrivals) world.on_ready(device, operation);
  return world.is_done();
}

std::vector<std::pair<size_t, size_t>> all_arrivals(const std::vector<uint32_t>& members,
                                                    size_t devices) {
  std::vector<std::pair<size_t, size_t>> arrivals;
  for (size_t device = 0; device < devices; ++device) {
    for (size_t i = 0; i < members.size(); ++i) {
      if ((members[i] >> device & 1) != 0) arrivals.emplace_back(device, i);
    }
  }
  return arrivals;
}

TEST(CollectiveOrder, NoThreeGroupsOnThreeDevicesDeadlockInAnyOrderOfArrival) {
  constexpr size_t kDevices = 3;
  const std::vector<uint32_t> groups = {0b011, 0b101, 0b110, 0b111};
  int stuck_without = 0;
  for (uint32_t a : groups) {
    for (uint32_t b : groups) {
      for (uint32_t c : groups) {
        const std::vector<uint32_t> members = {a, b, c};
        auto arrivals = all_arrivals(members, kDevices);
        if (arrivals.size() > 7) continue;  // 8! and more orders: the random test below.
        do {
          ASSERT_TRUE(all_end(members, kDevices, true, arrivals)) << a << " " << b << " " << c;
          if (!all_end(members, kDevices, false, arrivals)) ++stuck_without;
        } while (std::next_permutation(arrivals.begin(), arrivals.end()));
      }
    }
  }
  EXPECT_GT(stuck_without, 0) << "without the rule some must deadlock, or this tests nothing";
}

TEST(CollectiveOrder, RandomPlansOfManyGroupsEndOnEveryDevice) {
  int stuck_without = 0;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    Rng rng(seed);
    const size_t devices = 2 + rng.below(7);
    std::vector<uint32_t> members(1 + rng.below(12));
    for (uint32_t& mask : members) {
      mask = static_cast<uint32_t>(1 + rng.below((uint64_t{1} << devices) - 1));
    }
    auto arrivals = all_arrivals(members, devices);
    for (size_t i = arrivals.size(); i > 1; --i) std::swap(arrivals[i - 1], arrivals[rng.below(i)]);
    ASSERT_TRUE(all_end(members, devices, true, arrivals)) << "seed " << seed;
    if (!all_end(members, devices, false, arrivals)) ++stuck_without;
  }
  EXPECT_GT(stuck_without, 500);
}

TEST(CollectiveOrder, EachDeviceBeginsAscendingAndOneAtATime) {
  CollectiveOrder order;
  const CollectiveKey first{3, 0, 0}, second{3, 1, 0}, third{4, 0, 0};
  order.expect(second);
  order.expect(first);
  EXPECT_EQ(order.on_ready(second), std::nullopt) << "a lower one is expected";
  EXPECT_EQ(order.on_ready(first), first);
  order.expect(third);
  EXPECT_EQ(order.on_ready(third), std::nullopt);
  EXPECT_EQ(order.on_end(first), second);
  EXPECT_EQ(order.on_end(second), third);
  EXPECT_FALSE(order.is_idle());
  EXPECT_EQ(order.on_end(third), std::nullopt);
  EXPECT_TRUE(order.is_idle());
}

TEST(CollectiveOrder, RepeatsAndStrangersChangeNothing) {
  CollectiveOrder order;
  const CollectiveKey only{0, 0, 0}, stranger{0, 9, 0};
  order.expect(only);
  EXPECT_EQ(order.on_ready(stranger), std::nullopt);
  EXPECT_EQ(order.on_end(only), std::nullopt) << "it has not begun";
  EXPECT_EQ(order.on_ready(only), only);
  EXPECT_EQ(order.on_ready(only), std::nullopt);
  EXPECT_EQ(order.on_end(stranger), std::nullopt);
  EXPECT_EQ(order.on_end(only), std::nullopt);
  EXPECT_EQ(order.on_end(only), std::nullopt);
}

}  // namespace
}  // namespace skein::plans
