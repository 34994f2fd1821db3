#include "plans/sync/allreduce.hpp"

#include <algorithm>
#include <utility>

namespace skein::plans {

AllreducePolicy::AllreducePolicy(ReductionGroup group, uint64_t first_step)
    : group_(std::move(group)), step_(first_step) {}

std::vector<GroupStartDecision> AllreducePolicy::on_ready(const ReadySignal& signal) {
  const bool is_member = std::find(group_.members.begin(), group_.members.end(), signal.replica) !=
                         group_.members.end();
  if (!is_member || signal.step != step_) return {};
  ready_.insert(signal.replica);
  if (ready_.size() < group_.members.size()) return {};
  ready_.clear();
  ++step_;
  return {GroupStartDecision{group_.id, signal.step, group_.members}};
}

}  // namespace skein::plans
