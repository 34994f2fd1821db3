#pragma once

#include <vector>

#include "net/codec/envelope.hpp"
#include "plans/base/ids.hpp"
#include "plans/coordinator/coordination.hpp"
#include "plans/coordinator/coordinator_decisions.hpp"
#include "plans/plan/plan.hpp"

namespace skein::actors {

/// A message to one worker.
struct WorkerOrder {
  plans::WorkerId to;
  net::ControlBody body;
};
using WorkerOrders = std::vector<WorkerOrder>;

// What a decision means for the workers of the plan in force, as messages in their order.

/// To the workers of one pipeline replica.
WorkerOrders orders_of(const plans::ClaimSamples& decision, const plans::Plan& plan);
WorkerOrders orders_of(const plans::CommitPipeline& decision, const plans::Plan& plan);
/// To the members of a group, and the shards of its server.
WorkerOrders orders_of(const plans::AverageWeights& decision, const plans::Plan& plan);
WorkerOrders orders_of(const plans::AbortGroup& decision, const plans::Plan& plan);
WorkerOrders orders_of(const plans::OrderToken& decision, const plans::Plan& plan);

/// How to reach those of `workers` who are members.
std::vector<net::Peer> addresses_of(const std::map<plans::WorkerId, plans::Member>& members,
                                    const std::vector<plans::WorkerId>& workers);
/// All that `skein status` shows but for what only the process knows.
net::Status status_of(const plans::Coordination& coordination, uint64_t now_us);

}  // namespace skein::actors
