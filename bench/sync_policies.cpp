// How many ready signals a second each policy decides on, one core, 1,024 pipeline replicas of 8
// stages. In every run all replicas signal in a random order, groups end when all of a round have
// signalled or nobody is left who could, and timers fire when they are due. Prints the median of
// five runs with the slowest and the fastest, and the mean size of a group.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "plans/base/rng.hpp"
#include "plans/sync/ad_psgd.hpp"
#include "plans/sync/paired_rounds.hpp"
#include "plans/sync/partial_reduce.hpp"
#include "plans/sync/prague.hpp"
#include "plans/sync/sdpipe.hpp"

namespace skein::bench {
namespace {

constexpr int kRuns = 5;
constexpr plans::PipelineLayout kLayout{1024, 8};
constexpr uint64_t kSignals = 400'000;
constexpr uint64_t kStepUs = 1'000'000;
constexpr uint64_t kGroupUs = 50'000;
constexpr double kSignalsPerSecondMin = 200'000;

using MakePolicy = std::function<std::unique_ptr<plans::GroupScheduler>()>;

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// Replicas whose steps end in a random order, kept in buckets of time so that little but the
/// policy is measured.
class Load {
 public:
  explicit Load(plans::GroupScheduler& policy) : policy_(policy), buckets_(kBuckets) {
    for (uint32_t r = 0; r < kLayout.replica_count(); ++r) step_from(0, r);
  }

  void run() {
    for (uint64_t tick = 0; signals_ < kSignals; ++tick) {
      now_us_ = tick * kTickUs;
      if (wake_us_ && *wake_us_ <= now_us_) apply(policy_.on_timer(now_us_));
      while (!ends_.empty() && ends_.front().first <= now_us_) {
        const uint64_t number = ends_.front().second;
        ends_.pop_front();
        apply(policy_.on_group_end({number, true}, now_us_));
      }
      std::vector<uint32_t> due = std::exchange(buckets_[tick % kBuckets], {});
      for (const uint32_t replica : due) {
        ++signals_;
        apply(policy_.on_ready({{replica}, next_step_[replica]++}, now_us_));
      }
    }
  }
  uint64_t signals() const { return signals_; }
  double mean_group() const { return static_cast<double>(members_) / static_cast<double>(starts_); }

 private:
  static constexpr uint64_t kTickUs = 200;
  static constexpr uint64_t kBuckets = 2 * (kStepUs + kGroupUs) / kTickUs;

  void step_from(uint64_t start_us, uint32_t replica) {
    const uint64_t end_us = start_us + kStepUs / 2 + rng_.below(kStepUs);
    buckets_[end_us / kTickUs % kBuckets].push_back(replica);
  }
  void apply(const plans::GroupDecisions& decisions) {
    wake_us_ = decisions.wake_us;
    for (const plans::GroupStart& start : decisions.starts) {
      ++starts_;
      const bool is_local = start.average == plans::Average::kLocal;
      const uint64_t end_us = is_local ? now_us_ : now_us_ + kGroupUs;
      if (!is_local) ends_.emplace_back(end_us, start.number);
      for (const plans::GroupMember& member : start.members) {
        ++members_;
        const bool was_ready = member.step + 1 == next_step_[member.replica.value] &&
                               stepping_[member.replica.value] != next_step_[member.replica.value];
        if (!was_ready) continue;
        stepping_[member.replica.value] = next_step_[member.replica.value];
        step_from(end_us, member.replica.value);
      }
    }
  }

  plans::GroupScheduler& policy_;
  plans::Rng rng_{7};
  uint64_t now_us_ = 0, signals_ = 0, starts_ = 0, members_ = 0;
  std::optional<uint64_t> wake_us_;
  std::vector<std::vector<uint32_t>> buckets_;
  std::vector<uint64_t> next_step_ = std::vector<uint64_t>(kLayout.replica_count());
  std::vector<uint64_t> stepping_ = next_step_;     // The step that it computes; 0 is the first.
  std::deque<std::pair<uint64_t, uint64_t>> ends_;  // Time and number, ascending.
};

bool measure(const char* name, const MakePolicy& make_policy) {
  std::array<double, kRuns> rates{};
  double mean_group = 0;
  for (double& rate : rates) {
    const std::unique_ptr<plans::GroupScheduler> policy = make_policy();
    Load load(*policy);
    const double start = cpu_seconds();
    load.run();
    rate = static_cast<double>(load.signals()) / (cpu_seconds() - start);
    mean_group = load.mean_group();
  }
  std::sort(rates.begin(), rates.end());
  std::printf("%-28s %9.0f %9.0f %9.0f   %6.1f\n", name, rates[kRuns / 2], rates.front(),
              rates.back(), mean_group);
  return rates[kRuns / 2] >= kSignalsPerSecondMin;
}

bool measure_all() {
  std::printf("%-28s %9s %9s %9s   %6s\n", "signals per second", "median", "least", "most",
              "group");
  bool ok = true;
  for (const uint64_t period : {1, 10}) {
    ok &= measure(period == 1 ? "sdpipe, P = 1" : "sdpipe, P = 10", [&] {
      return std::make_unique<plans::SdpipePolicy>(kLayout, plans::SdpipeOptions{.period = period});
    });
  }
  for (const uint32_t size : {2u, 16u}) {
    ok &= measure(size == 2 ? "partial reduce, P = 2" : "partial reduce, P = 16", [&] {
      return std::make_unique<plans::PartialReducePolicy>(
          kLayout, plans::PartialReduceOptions{.group_size = size, .decay = 0.6});
    });
  }
  ok &= measure("prague", [] {
    return std::make_unique<plans::PraguePolicy>(kLayout, plans::PragueOptions{});
  });
  ok &= measure("ad-psgd", [] { return std::make_unique<plans::AdPsgdPolicy>(kLayout, 1); });
  ok &= measure("paired rounds",
                [] { return std::make_unique<plans::PairedRoundsPolicy>(kLayout, 1); });
  return ok;
}

}  // namespace
}  // namespace skein::bench

int main() { return skein::bench::measure_all() ? EXIT_SUCCESS : EXIT_FAILURE; }
