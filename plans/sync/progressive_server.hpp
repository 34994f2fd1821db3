#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "plans/sync/grouped_server.hpp"
#include "plans/sync/progressive_groups.hpp"

namespace skein::plans {

struct ProgressiveServerOptions {
  RegroupOptions regroup;
  bool has_group_servers = true;  // As `GroupedServerPolicy`.
};

/// Grouped servers that follow the stragglers: measures how long each pipeline replica computes
/// between its groups, and regroups when `RegroupTrigger` says so. Begins with one group,
/// synchronous, or with the number that is given, even ones. Source: Basu et al., HiPC 2018,
/// progressive grouping; the rule is `fewest_groups`.
class ProgressiveServerPolicy final : public GroupScheduler {
 public:
  /// All pipeline replicas of the layout are there, and begin with `first_step` now.
  ProgressiveServerPolicy(const PipelineLayout& layout, const ProgressiveServerOptions& options,
                          uint64_t first_step = 0, uint64_t now_us = 0);

  GroupDecisions on_ready(const ReadySignal& signal, uint64_t now_us) override;
  GroupDecisions on_timer(uint64_t) override { return {}; }
  GroupDecisions on_group_end(const GroupOutcome& outcome, uint64_t now_us) override;
  GroupDecisions on_membership(const MembershipChange& change, uint64_t now_us) override;
  void on_validation(double loss) override { trigger_.on_loss(loss, groups_.groups()); }

  PipelineGroups groups() const { return groups_.groups(); }

 private:
  struct Pace {
    bool is_computing = false;
    uint64_t since_us = 0;
    double step_us = 0;  // 0: not measured yet.
  };

  GroupDecisions remembering(GroupDecisions decisions);
  void begin(ReplicaId replica, uint64_t now_us);
  /// [pipeline replicas]; empty while one of them is away or has not been measured.
  std::vector<double> step_times() const;

  PipelineLayout layout_;
  GroupedServerPolicy groups_;
  RegroupTrigger trigger_;
  std::vector<Pace> paces_;                             // [replicas]
  std::map<uint64_t, std::vector<ReplicaId>> members_;  // By number of a group under way.
  uint64_t steps_seen_ = 0;  // By pipeline replicas at stage 0, since the last look.
};

}  // namespace skein::plans
