#pragma once

#include <cstdint>
#include <memory>

#include "plans/sync/group_scheduler.hpp"
#include "plans/sync/pipeline_layout.hpp"

namespace skein::plans {

enum class ServerMode { kSynchronous, kAsynchronous, kBounded };

struct ParameterServerOptions {
  ServerMode mode = ServerMode::kAsynchronous;
  uint64_t bound = 0;  // kBounded: s. Ignored otherwise.
};

/// Parameter servers, one per stage (server 0; how it is sharded over workers is the runtime's
/// matter). A group pushes its members' updates and takes the weights. Source: Li et al., Scaling
/// Distributed Machine Learning with the Parameter Server, OSDI'14, section 3.4; bounded: Ho et
/// al., More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server, NIPS'13.
///
/// - Synchronous: a step of all live pipeline replicas is one group; staleness 0. It is a grouped
/// server with
///   one group.
/// - Asynchronous: every ready member is a group by itself, at once. Staleness has no bound.
/// - Bounded: a member that is, with this step, more than s of its own steps ahead of the slowest
///   live pipeline replica at its stage is held until that one has moved; s = 0 is lockstep.
///   Staleness is at most 2 s (n - 1) updates of n pipeline replicas. It is HetPipe with waves of
///   one step, which says why nothing deadlocks.
///
/// A member's weight is 1 / (number of live pipeline replicas) in all three, so that a sample moves
/// the weights as much as in synchronous training with the same learning rate.
std::unique_ptr<GroupScheduler> parameter_server(const PipelineLayout& layout,
                                                 const ParameterServerOptions& options,
                                                 uint64_t first_step = 0);

}  // namespace skein::plans
