#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "plans/sync/policy_choice.hpp"
#include "plans/sync/sdpipe.hpp"

namespace skein::plans {

struct AdaptiveSdpipeOptions {
  SdpipeOptions sdpipe;  // Its period is the first one.
  /// What is known beforehand; slowness and stalls are measured. Without `forward_us`, so are the
  /// times of pieces, as equal shares of the fastest column's step, and the exchange.
  StragglerProfile profile;
  std::vector<uint64_t> periods = {1, 2, 5, 10};
  ChooserOptions chooser;
  uint64_t steps_between_looks = 5;  // Of a column, in the mean.
};

/// SDPipe whose period follows the stragglers: measures what each column's steps take to compute,
/// and changes P when a simulation of what was measured promises enough. P = 1 is synchronous, so
/// this reaches from all-reduce to loose groups; a change of P needs no boundary. Ours.
class AdaptiveSdpipePolicy final : public GroupScheduler {
 public:
  AdaptiveSdpipePolicy(const ColumnLayout& layout, AdaptiveSdpipeOptions options);

  GroupDecisions on_ready(const ReadySignal& signal, uint64_t now_us) override;
  GroupDecisions on_timer(uint64_t now_us) override {
    return follow(sdpipe_.on_timer(now_us), now_us);
  }
  GroupDecisions on_group_end(const GroupOutcome& outcome, uint64_t now_us) override;
  GroupDecisions on_membership(const MembershipChange& change, uint64_t now_us) override;

  uint64_t period() const { return sdpipe_.period(); }
  uint64_t change_count() const { return change_count_; }

 private:
  struct Pace {
    bool is_computing = false;  // Since when is not known yet.
    uint64_t since_us = 0;
    std::deque<double> steps_us;
  };

  GroupDecisions follow(GroupDecisions decisions, uint64_t now_us);
  void begin(ReplicaId replica, uint64_t now_us);
  void look(GroupDecisions& decisions);
  StragglerProfile observed_profile(const std::vector<std::vector<double>>& steps_us) const;

  ColumnLayout layout_;
  AdaptiveSdpipeOptions options_;
  SdpipePolicy sdpipe_;
  SyncChooser chooser_;
  std::vector<Pace> paces_;       // [columns], of their first stage.
  std::vector<bool> is_present_;  // [columns]
  struct Group {
    std::vector<ReplicaId> members;
    uint64_t since_us = 0;
  };
  std::map<uint64_t, Group> groups_;  // Under way, by number.
  std::deque<double> exchanges_us_;   // The last ones.
  uint64_t change_count_ = 0;
  uint64_t steps_seen_ = 0;
};

}  // namespace skein::plans
