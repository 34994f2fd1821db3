#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plans/sync/group_scheduler.hpp"
#include "plans/sync/peer_roster.hpp"

namespace skein::plans {

/// What policies among peers have in common: signals are checked against the roster, and one that
/// comes before the outcome of the replica's last group waits for that. A policy only says what
/// follows from a replica that is ready and free.
class PeerPolicy : public GroupScheduler {
 public:
  GroupDecisions on_ready(const ReadySignal& signal, uint64_t now_us) final;
  GroupDecisions on_timer(uint64_t now_us) final;
  GroupDecisions on_group_end(const GroupOutcome& outcome, uint64_t now_us) final;
  GroupDecisions on_membership(const MembershipChange& change, uint64_t now_us) final;

  PeerPolicy(const PeerPolicy&) = delete;
  PeerPolicy& operator=(const PeerPolicy&) = delete;

 protected:
  using Starts = std::vector<GroupStart>;

  /// `decay`: see `PeerRoster`.
  explicit PeerPolicy(PipelineLayout layout, std::optional<double> decay = {})
      : roster_(layout, decay) {}

  /// The replica is ready and in no group. Called once for each step that it finishes.
  virtual void on_waiting(ReplicaId replica, uint64_t now_us, Starts& starts) = 0;
  /// The replica's group has ended. `on_waiting` follows if it is ready and still free.
  virtual void on_free(ReplicaId, uint64_t /*now_us*/, Starts&) {}
  /// The roster has taken the pipeline replica in, or let it go.
  virtual void on_joined(uint32_t pipeline, uint64_t now_us, Starts& starts) = 0;
  virtual void on_left(uint32_t pipeline, uint64_t now_us, Starts& starts) = 0;
  virtual void on_due(uint64_t /*now_us*/, Starts&) {}
  /// When `on_due` is due.
  virtual std::optional<uint64_t> wake_us() const { return std::nullopt; }

  PeerRoster roster_;
};

}  // namespace skein::plans
