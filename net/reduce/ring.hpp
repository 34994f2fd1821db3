#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "net/reduce/exchange.hpp"

namespace skein::net {

/// values := sum over the ranks, by the ring of Patarasu and Yuan (JPDC 2009): 2 (P - 1) rounds,
/// each moves n / P numbers to the right neighbour. First the sums of the P pieces come together,
/// then they go round: every rank gets the bits that one rank computed.
///
/// `values`   [n]  the same n on every rank; n may be 0.
/// Errors          of the exchange; `values` are then neither the old nor the new ones.
/// Cost            2 (P - 1) / P n numbers sent by each rank, n / P numbers of memory.
absl::Status ring_sum(Exchange& exchange, std::span<float> values);
absl::Status ring_sum_float64(Exchange& exchange, std::span<double> values);

/// Fills the pieces of all ranks, in P - 1 rounds of the ring.
///
/// `pieces`   [P]  piece i is rank i's, of the same size on every rank; the own one is filled.
absl::Status ring_gather(Exchange& exchange, const std::vector<std::span<std::byte>>& pieces);

}  // namespace skein::net
