#include "net/reduce/host_sum.hpp"

#include "net/reduce/host_shards.hpp"
#include "net/reduce/ring.hpp"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::net {

absl::Status host_sum(Exchange& exchange, std::span<const uint32_t> hosts,
                      std::span<float> values) {
  SKEIN_CHECK(hosts.size() == exchange.rank_count())
      << hosts.size() << " hosts for " << exchange.rank_count() << " ranks";
  const HostShards shards = host_shards(hosts, exchange.rank());
  PartOfExchange local(exchange, shards.local, shards.local_position);
  SKEIN_RETURN_IF_ERROR(scatter_sums(local, shards.shard_count, values));
  if (shards.owns() && shards.host_count > 1) {
    PartOfExchange among_hosts(exchange, shards.owners, shards.owner_position);
    SKEIN_RETURN_IF_ERROR(
        ring_sum(among_hosts, piece_of(values, shards.local_position, shards.shard_count)));
  }
  return gather_shards(local, shards.shard_count, values);
}

}  // namespace skein::net
