#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/policies/lateness.hpp"
#include "plans/sync/allreduce.hpp"
#include "plans/sync/overlapped_average.hpp"
#include "plans/sync/sync_watch.hpp"

namespace skein::bench {

/// What a run with `sync.policy = "auto"` does, as one policy: it begins as all-reduce, watches
/// what steps take and what the reduction adds, which is all that it knows, each by a clock that is
/// late as a run's is, and changes to
/// overlapped averages when these promise more, behind a step that all have begun. It does not look
/// again then, as a run does: the scenarios that are compared stay as they are. Pipeline replicas
/// are those of the layout throughout.
class AutoPolicy final : public plans::GroupScheduler {
 public:
  /// `seed`  of how late its clock is.
  AutoPolicy(const plans::PipelineLayout& layout, const plans::SyncWatchOptions& options,
             uint64_t seed);

  plans::GroupDecisions on_ready(const plans::ReadySignal& signal, uint64_t now_us) override;
  plans::GroupDecisions on_timer(uint64_t) override { return {}; }
  plans::GroupDecisions on_group_end(const plans::GroupOutcome& outcome, uint64_t now_us) override;
  /// Pipeline replicas leave at the end of a round, and are back with the next one.
  plans::GroupDecisions on_membership(const plans::MembershipChange& change,
                                      uint64_t now_us) override;
  bool has_rounds() const override { return overlapped_ != nullptr; }

 private:
  struct Pipeline {
    uint64_t since_us = 0;  // When the step that it is in began.
    uint64_t next_step = 0;
  };

  plans::PipelineLayout layout_;
  plans::ChooserOptions chooser_;
  plans::SyncWatch watch_;
  Lateness lateness_;
  std::unique_ptr<plans::AllreducePolicy> allreduce_;
  std::unique_ptr<plans::OverlappedAveragePolicy> overlapped_;  // None: not yet.
  uint64_t slowest_us_ = 0;          // The slowest, in the synchronous step in progress.
  uint64_t first_step_ = 0;          // While pipeline replicas are under local updates.
  std::vector<Pipeline> pipelines_;  // Their first stage's.
};

}  // namespace skein::bench
