#pragma once

#include <set>

#include "plans/plan.hpp"
#include "plans/sync/group_scheduler.hpp"

namespace skein::plans {

/// Synchronous all-reduce: the group of a step is all replicas of the stage, and forms when the
/// last of them is ready. Steps come in order, as nobody passes a commit.
class AllreducePolicy final : public GroupScheduler {
 public:
  AllreducePolicy(ReductionGroup group, uint64_t first_step);

  std::vector<GroupStartDecision> on_ready(const ReadySignal& signal) override;

 private:
  ReductionGroup group_;
  uint64_t step_;
  std::set<ReplicaId> ready_;
};

}  // namespace skein::plans
