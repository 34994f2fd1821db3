#pragma once

#include <span>

#include "absl/status/status.h"
#include "net/reduce/exchange.hpp"
#include "net/reduce/half_float.hpp"

namespace skein::net {

/// values := sum over the ranks, with half the bytes of `ring_sum`. Every rank sends each piece
/// rounded to its owner, which adds them up in float32, always in the same order, and sends the
/// rounded sum to all. So each summand and the sum are rounded once, however many ranks there are;
/// a ring would round every partial sum.
///
/// `values`          [n]  the same n on every rank; n may be 0. A single rank keeps its values.
/// InvalidArgument        if a peer uses another format.
/// Cost                   2 (P - 1) / P n halves sent by each rank, n + 3 n / P halves of memory.
absl::Status half_sum(Exchange& exchange, HalfFormat format, std::span<float> values);

}  // namespace skein::net
