#include "bench/policy_simulation/figure_nine.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "plans/base/check.hpp"
#include "plans/sync/components.hpp"
#include "plans/sync/peer_policy.hpp"
#include "plans/sync/sdpipe_window.hpp"

namespace skein::bench {
namespace {

class FigureNineScheduler final : public plans::PeerPolicy {
 public:
  FigureNineScheduler(const plans::PipelineLayout& layout, uint64_t period, HoldRule rule)
      : PeerPolicy(layout),
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

}  // namespace

NamedPolicy figure_nine_scheduler(uint64_t period, HoldRule rule) {
  return {"P=" + std::to_string(period),
          [period, rule](const plans::PipelineLayout& layout, uint64_t) {
            return std::make_unique<FigureNineScheduler>(layout, period, rule);
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
