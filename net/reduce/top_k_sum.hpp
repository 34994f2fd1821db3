#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "net/reduce/exchange.hpp"

namespace skein::net {

/// A sum over the ranks to which each host contributes only its largest values; what is left out
/// is added to its next contribution (error feedback), so nothing is lost for good.
/// Source: HiTopKComm of Shi et al., MLSys'21: within each host, a dense reduce-scatter; each shard
/// takes part with its top k among hosts; then a dense all-gather within each host.
/// Differs: hosts may have unlike numbers of ranks; there are as many shards as ranks on the
/// smallest host. Where every rank is a host, this is the plain top-k all-gather; where there is
/// one host, the dense sum, and nothing is left out.
///
/// One caller at a time. What was left out is lost with the object.
class TopKSum {
 public:
  /// `density`   (0, 1]  share of each shard's values that is sent, rounded up.
  /// `hosts`     [P]     a number of the host of each rank, the same list on every rank; empty:
  ///                     every rank is a host.
  TopKSum(double density, std::vector<uint32_t> hosts)
      : density_(density), hosts_(std::move(hosts)) {}

  /// values := the sum; the same bits on every rank. Vectors of which parts are reduced apart are
  /// told apart by `first`, the place of the part's first float.
  ///
  /// `values`          [n]  the same n on every rank, less than 2^32; n may be 0.
  /// InvalidArgument        on every rank, if a value of any rank, or a sum, is not finite; or if a
  ///                        peer has another density. The object is of no use then.
  /// Cost                   8 (H - 1) k bytes sent among H hosts by each shard's rank, 2 n floats
  ///                        at most within one; n / shards floats of memory between calls.
  absl::Status reduce(Exchange& exchange, std::span<float> values, size_t first = 0);

 private:
  absl::Status reduce_among_hosts(Exchange& hosts, std::span<float> shard,
                                  std::vector<float>& left_out);

  double density_;
  std::vector<uint32_t> hosts_;
  std::map<size_t, std::vector<float>> left_out_;  // By `first`, in this rank's shard.
};

}  // namespace skein::net
