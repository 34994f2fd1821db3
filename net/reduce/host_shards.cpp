#include "net/reduce/host_shards.hpp"

#include <algorithm>
#include <map>

#include "plans/base/status_macros.hpp"

namespace skein::net {

HostShards host_shards(std::span<const uint32_t> hosts, uint32_t rank) {
  std::map<uint32_t, std::vector<uint32_t>> ranks_of;
  std::vector<uint32_t> order;  // Hosts by their first ranks.
  for (uint32_t each = 0; each < hosts.size(); ++each) {
    if (!ranks_of.contains(hosts[each])) order.push_back(hosts[each]);
    ranks_of[hosts[each]].push_back(each);
  }
  HostShards result;
  result.local = ranks_of.at(hosts[rank]);
  result.local_position = static_cast<uint32_t>(
      std::find(result.local.begin(), result.local.end(), rank) - result.local.begin());
  result.host_count = static_cast<uint32_t>(order.size());
  size_t smallest = hosts.size();
  for (const auto& [host, ranks] : ranks_of) smallest = std::min(smallest, ranks.size());
  result.shard_count = static_cast<uint32_t>(smallest);
  if (result.local_position >= smallest) return result;
  for (uint32_t host : order) {
    if (host == hosts[rank]) result.owner_position = static_cast<uint32_t>(result.owners.size());
    result.owners.push_back(ranks_of.at(host)[result.local_position]);
  }
  return result;
}

absl::Status scatter_sums(Exchange& local, uint32_t shard_count, std::span<float> values) {
  const uint32_t count = local.rank_count();
  const std::span<float> own = piece_of(values, local.rank(), shard_count);
  std::vector<float> received(own.size());
  for (uint32_t round = 1; round < count; ++round) {
    const uint32_t to = (local.rank() + round) % count;
    const uint32_t from = (local.rank() + count - round) % count;
    SKEIN_RETURN_IF_ERROR(local.move({to, std::as_bytes(piece_of(values, to, shard_count))},
                                     {from, std::as_writable_bytes(std::span(received))}));
    for (size_t i = 0; i < own.size(); ++i) own[i] += received[i];
  }
  return absl::OkStatus();
}

absl::Status gather_shards(Exchange& local, uint32_t shard_count, std::span<float> values) {
  const uint32_t count = local.rank_count();
  const std::span<float> own = piece_of(values, local.rank(), shard_count);
  for (uint32_t round = 1; round < count; ++round) {
    const uint32_t to = (local.rank() + round) % count;
    const uint32_t from = (local.rank() + count - round) % count;
    SKEIN_RETURN_IF_ERROR(
        local.move({to, std::as_bytes(own)},
                   {from, std::as_writable_bytes(piece_of(values, from, shard_count))}));
  }
  return absl::OkStatus();
}

}  // namespace skein::net
