#pragma once

#include <cstdint>
#include <vector>

#include "net/codec/plans.hpp"
#include "plans/planner/measured_request.hpp"

namespace skein::net {

// Measuring. `plans::MeasuredWorker` is the message Profiled; its `id` and `host` do not travel:
// the coordinator knows them.

/// Coordinator -> worker: measure the job's layers on your device, and your links to the peers.
struct ProfileRequest {
  std::vector<int64_t> rows;  // Rows of a micro-batch, each >= 1; kRowCountsMax. None: only answer.
  std::vector<Peer> peers;    // All workers; kPeersMax.
  bool operator==(const ProfileRequest&) const = default;
};

/// Whether Profiled may name this speed. A measurement that took no time has none.
bool is_link_speed(const plans::LinkSpeed& speed);

}  // namespace skein::net
