#pragma once

#include <set>
#include <vector>

#include "plans/plan/plan.hpp"
#include "plans/sync/group_scheduler.hpp"
#include "plans/sync/pipeline_layout.hpp"

namespace skein::plans {

/// Synchronous all-reduce: the groups of a step are those of the plan, and each forms when the last
/// of its members is ready. Steps come in order, as nobody passes a commit. Who takes part does not
/// change: a change of members makes a new plan, and with it a new policy.
class AllreducePolicy final : public GroupScheduler {
 public:
  AllreducePolicy(const std::vector<ReductionGroup>& groups, uint64_t first_step);
  /// All replicas of a stage together, from step 0 on.
  explicit AllreducePolicy(const PipelineLayout& layout);

  GroupDecisions on_ready(const ReadySignal& signal, uint64_t now_us) override;
  GroupDecisions on_timer(uint64_t) override { return {}; }
  GroupDecisions on_group_end(const GroupOutcome&, uint64_t) override { return {}; }
  GroupDecisions on_membership(const MembershipChange&, uint64_t) override { return {}; }
  bool has_rounds() const override { return false; }

 private:
  struct Gathering {
    ReductionGroup group;
    uint64_t step = 0;
    std::set<ReplicaId> ready;
  };

  GroupStart start(const Gathering& gathering);

  std::vector<Gathering> gatherings_;        // One per group of the plan, in its order.
  std::vector<std::vector<size_t>> member_;  // [replicas] positions in `gatherings_`.
  uint64_t started_count_ = 0;
};

}  // namespace skein::plans
