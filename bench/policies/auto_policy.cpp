#include "bench/policies/auto_policy.hpp"

#include <algorithm>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::bench {
namespace {

constexpr uint64_t kFirstNumber = uint64_t{1} << 32;  // Overlapped averages begin here.

plans::GroupDecisions of_averages(plans::GroupDecisions decisions) {
  for (plans::GroupStart& each : decisions.starts) each.number += kFirstNumber;
  return decisions;
}

}  // namespace

AutoPolicy::AutoPolicy(const plans::PipelineLayout& layout, const plans::SyncWatchOptions& options,
                       uint64_t seed)
    : layout_(layout),
      chooser_(options.chooser),
      watch_(layout, options, {}),
      lateness_(seed),
      allreduce_(std::make_unique<plans::AllreducePolicy>(layout)),
      pipelines_(layout.pipelines) {}

plans::GroupDecisions AutoPolicy::on_ready(const plans::ReadySignal& signal, uint64_t now_us) {
  if (layout_.stage_of(signal.replica) == 0) {
    const uint32_t c = layout_.pipeline_of(signal.replica);
    pipelines_[c].next_step = signal.step + 1;
    if (!overlapped_) {
      const uint64_t busy_us = now_us - pipelines_[c].since_us;
      slowest_us_ = std::max(slowest_us_, busy_us);
      watch_.on_step(c, busy_us + lateness_.next_us());
      if (const auto choice = watch_.look(); choice && choice->candidate.runs_pipelines()) {
        for (const Pipeline& each : pipelines_) first_step_ = std::max(first_step_, each.next_step);
        overlapped_ = std::make_unique<plans::OverlappedAveragePolicy>(
            layout_, plans::overlapped_options(choice->candidate,
                                               chooser_.averages_moments(choice->candidate)));
      }
    }
  }
  if (!overlapped_ || signal.step < first_step_) return allreduce_->on_ready(signal, now_us);
  return of_averages(overlapped_->on_ready(signal, now_us));
}

plans::GroupDecisions AutoPolicy::on_group_end(const plans::GroupOutcome& outcome,
                                               uint64_t now_us) {
  if (outcome.number < kFirstNumber) {
    if (slowest_us_ > 0) {
      const uint64_t step_us = now_us - pipelines_.front().since_us;
      // Late pipeline replicas would make the step late, too; so only its own end counts.
      const uint64_t added_us = step_us - std::min(step_us, std::exchange(slowest_us_, 0));
      watch_.on_added(added_us + lateness_.next_us());
    }
    for (Pipeline& each : pipelines_) each.since_us = now_us;
    return allreduce_->on_group_end(outcome, now_us);
  }
  return of_averages(
      overlapped_->on_group_end({outcome.number - kFirstNumber, outcome.ok}, now_us));
}

plans::GroupDecisions AutoPolicy::on_membership(const plans::MembershipChange& change,
                                                uint64_t now_us) {
  SKEIN_CHECK(overlapped_) << "nobody leaves synchronous steps";
  return of_averages(overlapped_->on_membership(change, now_us));
}

}  // namespace skein::bench
