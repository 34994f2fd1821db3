#include "plans/simulator/fair_links.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "plans/base/rng.hpp"

namespace skein::plans {
namespace {

LinkSet over(std::initializer_list<int32_t> links) {
  LinkSet set;
  for (int32_t link : links) set.ids[static_cast<size_t>(set.count++)] = link;
  return set;
}

TEST(FairLinks, AFlowAloneHasItsSlowestLink) {
  FairLinks links({10, 4, 7});
  links.start(over({0, 1, 2}), 100, 5, 3);
  links.settle(3);
  EXPECT_EQ(links.rate(5), 4);
  EXPECT_EQ(links.next_end_us(), 28);
  EXPECT_EQ(links.end_next(), 5);
  EXPECT_TRUE(std::isinf(links.next_end_us()));
}

TEST(FairLinks, FlowsOfOneLinkShareItAndTakeOverWhatIsFreed) {
  FairLinks links({10});
  links.start(over({0}), 100, 0, 0);
  links.start(over({0}), 50, 1, 0);
  links.settle(0);
  EXPECT_EQ(links.next_end_us(), 10);
  EXPECT_EQ(links.end_next(), 1);
  links.settle(10);
  EXPECT_EQ(links.rate(0), 10);
  EXPECT_EQ(links.next_end_us(), 15);
}

TEST(FairLinks, AFlowHeldBackElsewhereLeavesItsShareToTheOthers) {
  // Link 1 allows 2, so of link 0's 10 the other two have 4 each.
  FairLinks links({10, 2});
  links.start(over({0, 1}), 1e3, 0, 0);
  links.start(over({0}), 1e3, 1, 0);
  links.start(over({0}), 1e3, 2, 0);
  links.settle(0);
  EXPECT_EQ(links.rate(0), 2);
  EXPECT_EQ(links.rate(1), 4);
  EXPECT_EQ(links.rate(2), 4);
}

/// Flows that come and go at random, checked after each event.
class RandomTraffic {
 public:
  RandomTraffic(uint64_t seed, bool settles_each) : rng_(seed), settles_each_(settles_each) {
    for (int i = 0; i < 6; ++i) capacities_.push_back(1 + static_cast<double>(rng_.below(5)));
    links_ = std::make_unique<FairLinks>(capacities_);
  }
  void come(double now_us) {
    LinkSet set;
    set.count = 1 + static_cast<int32_t>(rng_.below(3));
    const auto first = static_cast<int32_t>(rng_.below(6));
    for (int32_t i = 0; i < set.count; ++i) set.ids[static_cast<size_t>(i)] = (first + 2 * i) % 6;
    flows_[next_] = set;
    links_->start(set, 1 + static_cast<double>(rng_.below(20)), next_++, now_us);
    if (settles_each_) links_->settle(now_us);
  }
  double leave() {
    const double now_us = links_->next_end_us();
    flows_.erase(links_->end_next());
    if (settles_each_) links_->settle(now_us);
    return now_us;
  }
  void settle(double now_us) { links_->settle(now_us); }
  bool empty() const { return flows_.empty(); }

  double load(int32_t link) const {
    double sum = 0;
    for (const auto& [tag, set] : flows_) sum += uses(set, link) ? links_->rate(tag) : 0;
    return sum;
  }
  static bool uses(const LinkSet& set, int32_t link) {
    return std::find(set.ids.begin(), set.ids.begin() + set.count, link) !=
           set.ids.begin() + set.count;
  }
  /// The definition: each flow has a link that is full and on which nobody is faster.
  bool is_max_min_fair() const {
    for (int32_t link = 0; link < 6; ++link) {
      if (load(link) > capacities_[static_cast<size_t>(link)] * (1 + 1e-9)) return false;
    }
    return std::all_of(flows_.begin(), flows_.end(), [this](const auto& entry) {
      for (int32_t i = 0; i < entry.second.count; ++i) {
        const int32_t link = entry.second.ids[static_cast<size_t>(i)];
        bool is_bottleneck = load(link) > capacities_[static_cast<size_t>(link)] * (1 - 1e-9);
        for (const auto& [tag, set] : flows_) {
          is_bottleneck =
              is_bottleneck &&
              (!uses(set, link) || links_->rate(tag) <= links_->rate(entry.first) * (1 + 1e-9));
        }
        if (is_bottleneck) return true;
      }
      return false;
    });
  }
  std::vector<double> rates() const {
    std::vector<double> rates;
    for (const auto& [tag, set] : flows_) rates.push_back(links_->rate(tag));
    return rates;
  }

 private:
  Rng rng_;
  bool settles_each_;
  std::vector<double> capacities_;
  std::unique_ptr<FairLinks> links_;
  std::map<int32_t, LinkSet> flows_;
  int32_t next_ = 0;
};

TEST(FairLinks, RatesAreMaxMinFairWhateverComesAndGoes) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomTraffic traffic(seed, true);
    double now_us = 0;
    for (int burst = 0; burst < 8; ++burst) {
      for (int i = 0; i < 4; ++i) {
        traffic.come(now_us);
        ASSERT_TRUE(traffic.is_max_min_fair()) << "seed " << seed;
      }
      for (int i = 0; i < 3; ++i) {
        now_us = traffic.leave();
        ASSERT_TRUE(traffic.is_max_min_fair()) << "seed " << seed;
      }
    }
    while (!traffic.empty()) {
      now_us = traffic.leave();
      ASSERT_TRUE(traffic.is_max_min_fair()) << "seed " << seed;
    }
  }
}

TEST(FairLinks, SettlingOnceForAnInstantGivesTheSameRates) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomTraffic each(seed, true), once(seed, false);
    for (int i = 0; i < 12; ++i) {
      each.come(0);
      once.come(0);
    }
    once.settle(0);
    const std::vector<double> expected = each.rates(), got = once.rates();
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-9);
  }
}

}  // namespace
}  // namespace skein::plans
