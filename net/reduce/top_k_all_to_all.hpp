#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "net/reduce/exchange.hpp"

namespace skein::net {

/// A sum over the ranks to which each rank contributes only its largest values; what is left out
/// is added to its next contribution (error feedback). Sparse shards go all to all, each rank adds
/// up its own shard, and the dense shards are gathered. Source: TopKA2A, ICPP'24, of which only the
/// README of a re-implementation was read.
/// Differs: the largest values are chosen within each shard, so that a receiver knows the size of
/// what comes; and to its own shard a rank contributes all of its values, which cost nothing.
///
/// One caller at a time. What was left out is lost with the object.
class TopKAllToAll {
 public:
  /// `density`   (0, 1]  share of each other rank's shard that is sent, rounded up.
  explicit TopKAllToAll(double density) : density_(density) {}

  /// values := the sum; the same bits on every rank. Vectors of which parts are reduced apart are
  /// told apart by `first`, the place of the part's first float.
  ///
  /// `values`          [n]  the same n on every rank, less than 2^32; n may be 0.
  /// InvalidArgument        on every rank, if a value of any rank, or a sum, is not finite; or if a
  ///                        peer has another density. The object is of no use then.
  /// Cost                   (P - 1) / P (8 k + 4 n) bytes sent by each of P ranks, where k is
  ///                        density n; n floats of memory between calls.
  absl::Status reduce(Exchange& exchange, std::span<float> values, size_t first = 0);

 private:
  double density_;
  std::map<size_t, std::vector<float>> left_out_;  // By `first`.
};

}  // namespace skein::net
