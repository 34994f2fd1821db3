#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "net/reduce/exchange.hpp"
#include "net/reduce/pieces.hpp"

namespace skein::net {

/// Who owns which shard of a vector: the first ranks of every host own one each, as many as the
/// smallest host has ranks.
struct HostShards {
  std::vector<uint32_t> local;  // Ranks of this rank's host, ascending.
  uint32_t local_position = 0;  // This rank's place among them; its shard, if it owns one.
  uint32_t shard_count = 1;
  std::vector<uint32_t> owners;  // The owners of this rank's shard, one a host, in the order of the
                                 // hosts' first ranks; empty if this rank owns none.
  uint32_t owner_position = 0;   // This rank's place among them.
  uint32_t host_count = 1;

  bool owns() const { return !owners.empty(); }
};

/// `hosts`   [P]  of each rank.
HostShards host_shards(std::span<const uint32_t> hosts, uint32_t rank);

/// Every owner's shard := its sum over the ranks of its host. Other floats keep what they were.
absl::Status scatter_sums(Exchange& local, uint32_t shard_count, std::span<float> values);
/// Every rank gets all shards from the owners of its host.
absl::Status gather_shards(Exchange& local, uint32_t shard_count, std::span<float> values);

}  // namespace skein::net
