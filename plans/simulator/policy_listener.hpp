#pragma once

#include <cstdint>

#include "plans/base/ids.hpp"
#include "plans/sync/group_scheduler.hpp"

namespace skein::plans {

/// Is told what happens in a simulated run, at the simulated moment, so that it can do the real
/// work there: compute, update, average. Steps are a pipeline replica's own, as in `ReadySignal`.
/// Pipeline replicas that die or join are not told of.
class PolicyListener {
 public:
  virtual ~PolicyListener() = default;

  /// The run has come to `now_us`, where something happens next. False ends it there.
  virtual bool advance(double now_us) = 0;
  /// A forward begins: it, and the backward of the same step, see the weights as they are now.
  virtual void on_forward_start(ReplicaId replica, uint64_t step) = 0;
  /// Its outputs are there; the next stage begins its own at this time or later.
  virtual void on_forward_end(ReplicaId replica, uint64_t step) = 0;
  /// A backward has ended: the gradients of the replica's weights and inputs are there. The signal
  /// that it is ready comes next.
  virtual void on_gradient(ReplicaId replica, uint64_t step) = 0;
  /// The members begin to average; kLocal is over with that.
  virtual void on_group_start(const GroupStart& start) = 0;
  /// They are through, and go on after this call. Not called for kLocal.
  virtual void on_group_end(const GroupStart& start, bool ok) = 0;
  /// All have taken the global average.
  virtual void on_round_end() {}
};

}  // namespace skein::plans
