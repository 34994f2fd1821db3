#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "net/reduce/exchange.hpp"

namespace skein::net {

/// values := sum over the ranks, within each host first: a reduce-scatter among the ranks of a
/// host, a ring for each shard among hosts, an all-gather within the host. A dense all-reduce in
/// two levels, as a torus of hosts and ranks has it; where links between hosts are slow, what
/// crosses them is what counts.
///
/// `hosts`    [P]  a number of the host of each rank, the same list on every rank. Hosts may have
///                 unlike numbers of ranks; there are as many shards as ranks on the smallest.
/// `values`   [n]  the same n on every rank; n may be 0.
/// Errors          of the exchange; `values` are then neither the old nor the new ones.
/// Cost            with H hosts 2 (H - 1) / H n floats out of each host, in all; a ring over all P
///                 ranks, host by host, has 2 (P - 1) / P n.
absl::Status host_sum(Exchange& exchange, std::span<const uint32_t> hosts, std::span<float> values);

}  // namespace skein::net
