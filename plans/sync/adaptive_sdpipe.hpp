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
  SdpipeOptions sdpipe;  // With what it begins; its decay, and its window at all times.
  /// What is known beforehand; slowness and stalls are measured. Without `forward_us`, so are the
  /// times of pieces, as equal shares of the fastest column's step, and the exchange.
  StragglerProfile profile;
  std::vector<uint64_t> periods = {1, 2, 5, 10};
  std::vector<uint64_t> local_steps = {1, 2, 3};
  ChooserOptions chooser;
  /// Of a column, in the mean. Looks that change nothing come to be twice as rare each time.
  uint64_t steps_between_looks = 3, steps_between_looks_max = 48;
};

/// SDPipe that follows the stragglers: measures what each column's steps take to compute, simulates
/// what was measured with each pair of P, how loosely columns hang together, and k, how often they
/// meet, and changes to another one that promises enough progress: throughput, less what replicas
/// lose that are apart. P = k = 1 is synchronous, so this reaches from all-reduce over local SGD to
/// loose groups; a change needs no boundary. On like parts two steps between meetings cost less
/// than the exchange that they save, unless links are fast; on unlike ones, where a column by
/// itself runs off, it stays with exact averages unless stragglers make that dear, and averages
/// moments as soon as it steps alone. Ours.
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
  uint64_t local_steps() const { return sdpipe_.local_steps(); }
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
  uint64_t steps_between_looks_;
};

}  // namespace skein::plans
