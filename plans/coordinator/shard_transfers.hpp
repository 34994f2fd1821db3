#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>

#include "plans/base/ids.hpp"
#include "plans/base/outcome.hpp"
#include "plans/base/units.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"

namespace skein::plans {

/// Which stages' state comes to the coordinator to be saved there, as the worker that leads the
/// stage does not see the run's folder. They are received one after the other, so that no more than
/// one stage is in the coordinator's memory; who has to wait keeps what it sends. A state machine
/// without clock or I/O.
class ShardTransfers {
 public:
  /// `patience_seconds`   for the next layer of a shard, until the shard is given up.
  explicit ShardTransfers(double patience_seconds)
      : patience_us_(patience_seconds * kMicrosecondsPerSecond) {}

  /// A worker has begun to send a shard. The caller has checked that it may, and that the
  /// checkpoint is wanted.
  Outcome<CoordinatorDecisions> on_sent(const ReceiveShard& shard, uint64_t now_us);
  /// It has been sent, or is to be, and has not ended.
  bool awaits(int32_t stage, uint64_t steps_done) const;
  /// A layer of the shard has come. None: it was awaited.
  std::optional<DropReason> on_layer(int32_t stage, uint64_t steps_done, uint64_t now_us);
  /// The shard is saved, or will not be: the next one is received.
  Outcome<CoordinatorDecisions> on_ended(int32_t stage, uint64_t steps_done, uint64_t now_us);
  /// The worker cannot send its shard, which is awaited.
  CoordinatorDecisions on_failed(int32_t stage, uint64_t steps_done, uint64_t now_us);
  /// The checkpoint has failed: what is received of it is not waited for any longer, and what is
  /// yet to be received is discarded then, so that it is not in the way of the next.
  CoordinatorDecisions discard(uint64_t steps_done, uint64_t now_us);
  /// The shard that is received, if nothing of it has come for too long.
  const ReceiveShard* overdue(uint64_t now_us) const;
  /// Layers of the shard that is received, if any, which have come.
  int64_t layers_there() const { return layers_there_; }
  /// The plan is over, and with it all transfers.
  void end_generation();
  /// True once for each worker and plan: people are told that it does not see the folder.
  bool is_news(WorkerId sender) { return told_.insert(sender).second; }

  void check_invariants() const;

 private:
  bool is_received(int32_t stage, uint64_t steps_done) const;
  CoordinatorDecisions begin_first(uint64_t now_us);

  // Invariants: a stage's state of one step comes once; no more layers have come than there are.
  const double patience_us_;
  std::deque<ReceiveShard> shards_;  // The first one is received, the others wait.
  int64_t layers_there_ = 0;         // How many of the first one have come.
  std::set<WorkerId> told_;          // Whom people know of.
  uint64_t heard_us_ = 0;            // When it was begun, or its last layer came.
};

}  // namespace skein::plans
