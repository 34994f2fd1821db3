#include "bench/policy_simulation/figure_nine.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "plans/base/check.hpp"
#include "plans/base/rng.hpp"
#include "plans/sync/components.hpp"
#include "plans/sync/peer_policy.hpp"
#include "plans/sync/sdpipe_window.hpp"

namespace skein::bench {
namespace {

class FigureNineScheduler final : public plans::PeerPolicy {
 public:
  FigureNineScheduler(const plans::PipelineLayout& layout, uint64_t period, HoldRule rule,
                      WindowRule window)
      : PeerPolicy(layout),
        window_rule_(window),
        updates_between_holds_(period * layout.pipelines),
        rule_(rule),
        windows_(layout.pipelines, plans::AdaptiveWindow(window_)),
        components_(std::vector<bool>(layout.pipelines, true)) {
    SKEIN_CHECK(layout.stages == 1 && period >= 1);
  }

 private:
  using ReplicaId = plans::ReplicaId;

  void on_waiting(ReplicaId replica, uint64_t now_us, Starts& starts) override {
    ready_.push_back(replica);
    components_.connect(std::array{ready_[0].value, replica.value});
    if (ready_.size() == 1) {
      holds_ = needs_hold_;
      deadline_us_ = now_us + windows_[replica.value].window_us(window_);
    }
    on_due(now_us, starts);
  }

  void on_due(uint64_t now_us, Starts& starts) override {
    if (is_due(now_us)) release(starts);
  }

  void on_joined(uint32_t, uint64_t, Starts&) override { SKEIN_CHECK(false) << "nobody joins"; }
  void on_left(uint32_t, uint64_t, Starts&) override { SKEIN_CHECK(false) << "nobody leaves"; }

  std::optional<uint64_t> wake_us() const override {
    if (ready_.empty() || holds_) return std::nullopt;
    return deadline_us_;
  }

  bool is_due(uint64_t now_us) const {
    if (ready_.empty()) return false;
    if (ready_.size() == windows_.size()) return true;
    if (!holds_) return now_us >= deadline_us_;
    return rule_ == HoldRule::kMissingEdges && components_.count() == 1;
  }

  void release(Starts& starts) {
    std::vector<ReplicaId> members = std::exchange(ready_, {});
    std::sort(members.begin(), members.end());
    for (const ReplicaId member : members) {
      if (window_rule_ == WindowRule::kStays) break;
      windows_[member.value].on_group(window_, members.size());
    }
    if (holds_) {
      components_.reset();
      needs_hold_ = false;
    }
    const uint64_t holds_due = updates_ / updates_between_holds_;
    updates_ += members.size();
    if (updates_ / updates_between_holds_ > holds_due) needs_hold_ = true;
    starts.push_back(roster_.start(members));
  }

  const plans::WindowOptions window_ = plans::artefact_window();
  const WindowRule window_rule_;
  const uint64_t updates_between_holds_;
  const HoldRule rule_;
  std::vector<ReplicaId> ready_;  // In the order of arrival.
  uint64_t deadline_us_ = 0;      // If any is ready and none is held.
  bool holds_ = false;
  bool needs_hold_ = false;
  uint64_t updates_ = 0;
  std::vector<plans::AdaptiveWindow> windows_;  // [pipeline replicas]
  plans::Components components_;
};

/// Hands ready signals on when their delay is over.
class JitteredArrivals final : public plans::GroupScheduler {
 public:
  JitteredArrivals(std::unique_ptr<plans::GroupScheduler> policy, uint64_t jitter_us, uint64_t seed)
      : policy_(std::move(policy)), jitter_us_(jitter_us), rng_(seed) {}

  plans::GroupDecisions on_ready(const plans::ReadySignal& signal, uint64_t now_us) override {
    delayed_.emplace(now_us + rng_.below(jitter_us_ + 1), signal);
    return on_timer(now_us);
  }

  plans::GroupDecisions on_timer(uint64_t now_us) override {
    plans::GroupDecisions decisions;
    while (!delayed_.empty() && delayed_.begin()->first <= now_us) {
      take(policy_->on_ready(delayed_.begin()->second, now_us), decisions);
      delayed_.erase(delayed_.begin());
    }
    if (wake_us_ && *wake_us_ <= now_us) take(policy_->on_timer(now_us), decisions);
    return with_wake(std::move(decisions));
  }

  plans::GroupDecisions on_group_end(const plans::GroupOutcome& outcome, uint64_t now_us) override {
    plans::GroupDecisions decisions;
    take(policy_->on_group_end(outcome, now_us), decisions);
    return with_wake(std::move(decisions));
  }

  plans::GroupDecisions on_membership(const plans::MembershipChange& change,
                                      uint64_t now_us) override {
    plans::GroupDecisions decisions;
    take(policy_->on_membership(change, now_us), decisions);
    return with_wake(std::move(decisions));
  }

 private:
  void take(plans::GroupDecisions own, plans::GroupDecisions& all) {
    std::move(own.starts.begin(), own.starts.end(), std::back_inserter(all.starts));
    wake_us_ = own.wake_us;
  }

  plans::GroupDecisions with_wake(plans::GroupDecisions decisions) const {
    decisions.wake_us = wake_us_;
    if (!delayed_.empty()) {
      decisions.wake_us = std::min(wake_us_.value_or(UINT64_MAX), delayed_.begin()->first);
    }
    return decisions;
  }

  std::unique_ptr<plans::GroupScheduler> policy_;
  const uint64_t jitter_us_;
  plans::Rng rng_;
  std::multimap<uint64_t, plans::ReadySignal> delayed_;  // By when they are handed on.
  std::optional<uint64_t> wake_us_;                      // What `policy_` wished last.
};

}  // namespace

NamedPolicy figure_nine_scheduler(uint64_t period, HoldRule rule, WindowRule window) {
  return {"P=" + std::to_string(period),
          [period, rule, window](const plans::PipelineLayout& layout, uint64_t) {
            return std::make_unique<FigureNineScheduler>(layout, period, rule, window);
          }};
}

NamedPolicy with_jitter(const NamedPolicy& policy, uint64_t jitter_us) {
  return {policy.name, [policy, jitter_us](const plans::PipelineLayout& layout, uint64_t seed) {
            return std::make_unique<JitteredArrivals>(policy.make(layout, seed), jitter_us, seed);
          }};
}

std::array<uint64_t, 5> size_quantiles(const plans::PolicySimulation& result, SizeOf counted) {
  std::map<uint64_t, uint64_t> counts;
  for (const auto& [size, groups] : result.sizes) {
    if (counted == SizeOf::kUpdates) counts[size] = size * groups;
    if (counted == SizeOf::kAverages && size > 1) counts[size] = groups;
  }
  uint64_t total = 0;
  for (const auto& [size, count] : counts) total += count;
  std::array<uint64_t, 5> quantiles = {};
  for (size_t quarter = 0; quarter < quantiles.size(); ++quarter) {
    uint64_t below = 0;
    for (const auto& [size, count] : counts) {
      quantiles[quarter] = size;
      below += count;
      if (4 * below >= quarter * total) break;
    }
  }
  return quantiles;
}

uint64_t quartiles_off_by(const std::array<uint64_t, 5>& sizes, const FigureNineBox& box) {
  uint64_t most = 0;
  for (size_t quarter = 1; quarter <= 3; ++quarter) {
    const uint64_t ours = sizes[quarter], theirs = box.sizes[quarter];
    most = std::max(most, ours > theirs ? ours - theirs : theirs - ours);
  }
  return most;
}

}  // namespace skein::bench
