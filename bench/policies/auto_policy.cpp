#include "bench/policies/auto_policy.hpp"

#include <algorithm>

#include "plans/base/check.hpp"

namespace skein::bench {
namespace {

constexpr uint64_t kFirstNumber = uint64_t{1} << 32;  // Overlapped averages begin here.

}  // namespace

AutoPolicy::AutoPolicy(const plans::ColumnLayout& layout, const plans::SyncWatchOptions& options)
    : layout_(layout),
      chooser_(options.chooser),
      watch_(layout, options, {}),
      allreduce_(std::make_unique<plans::AllreducePolicy>(layout)),
      columns_(layout.columns) {}

plans::GroupDecisions AutoPolicy::on_ready(const plans::ReadySignal& signal, uint64_t now_us) {
  if (layout_.stage_of(signal.replica) == 0) {
    const uint32_t c = layout_.column_of(signal.replica);
    columns_[c].next_step = signal.step + 1;
    if (!overlapped_) {
      watch_.on_step(c, now_us - columns_[c].since_us);
      if (const auto choice = watch_.look(); choice && choice->candidate.runs_columns()) {
        for (const Column& each : columns_) first_step_ = std::max(first_step_, each.next_step);
        overlapped_ = std::make_unique<plans::OverlappedAveragePolicy>(
            layout_, plans::overlapped_options(choice->candidate,
                                               chooser_.averages_moments(choice->candidate)));
      }
    }
  }
  if (!overlapped_ || signal.step < first_step_) return allreduce_->on_ready(signal, now_us);
  plans::GroupDecisions decisions = overlapped_->on_ready(signal, now_us);
  for (plans::GroupStart& each : decisions.starts) each.number += kFirstNumber;
  return decisions;
}

plans::GroupDecisions AutoPolicy::on_group_end(const plans::GroupOutcome& outcome,
                                               uint64_t now_us) {
  if (outcome.number < kFirstNumber) {
    for (Column& each : columns_) each.since_us = now_us;
    return allreduce_->on_group_end(outcome, now_us);
  }
  plans::GroupDecisions decisions =
      overlapped_->on_group_end({outcome.number - kFirstNumber, outcome.ok}, now_us);
  for (plans::GroupStart& each : decisions.starts) each.number += kFirstNumber;
  return decisions;
}

plans::GroupDecisions AutoPolicy::on_membership(const plans::MembershipChange&, uint64_t) {
  SKEIN_CHECK(false) << "the columns of a comparison stay";
  return {};
}

}  // namespace skein::bench
