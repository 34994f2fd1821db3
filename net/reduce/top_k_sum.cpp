#include "net/reduce/top_k_sum.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "net/reduce/host_shards.hpp"
#include "net/reduce/ring.hpp"
#include "net/reduce/sparse_frame.hpp"
#include "net/reduce/top_k.hpp"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::net {

absl::Status TopKSum::reduce(Exchange& exchange, std::span<float> values, size_t first) {
  const uint32_t count = exchange.rank_count();
  if (hosts_.empty()) {
    hosts_.resize(count);
    std::iota(hosts_.begin(), hosts_.end(), 0);
  }
  SKEIN_CHECK(hosts_.size() == count) << hosts_.size() << " hosts for " << count << " ranks";
  SKEIN_CHECK(values.size() < std::numeric_limits<uint32_t>::max()) << values.size() << " floats";
  const HostShards shards = host_shards(hosts_, exchange.rank());
  PartOfExchange local(exchange, shards.local, shards.local_position);
  SKEIN_RETURN_IF_ERROR(scatter_sums(local, shards.shard_count, values));
  absl::Status refusal;
  if (shards.owns() && shards.host_count > 1) {
    const std::span<float> shard = piece_of(values, shards.local_position, shards.shard_count);
    PartOfExchange among_hosts(exchange, shards.owners, shards.owner_position);
    refusal = reduce_among_hosts(among_hosts, shard, left_out_[first]);
    if (!refusal.ok() && !absl::IsInvalidArgument(refusal)) return refusal;
    // The other ranks of the host hear of it by the values.
    if (!refusal.ok()) {
      std::fill(shard.begin(), shard.end(), std::numeric_limits<float>::quiet_NaN());
    }
  }
  SKEIN_RETURN_IF_ERROR(gather_shards(local, shards.shard_count, values));
  SKEIN_RETURN_IF_ERROR(refusal);
  if (are_finite(values)) return absl::OkStatus();
  return absl::InvalidArgumentError("the sum of the members' gradients is not finite");
}

/// All frames are received before any is added up, so that every host adds them in one order.
absl::Status TopKSum::reduce_among_hosts(Exchange& hosts, std::span<float> shard,
                                         std::vector<float>& left_out) {
  left_out.resize(shard.size(), 0.0F);
  for (size_t i = 0; i < shard.size(); ++i) left_out[i] += shard[i];
  const size_t words = sparse_frame_words(top_k_count(density_, shard.size()));
  std::vector<uint32_t> frames(words * hosts.rank_count());
  std::vector<std::span<std::byte>> pieces;
  auto frame_of = [&](uint32_t host) { return std::span(frames).subspan(host * words, words); };
  for (uint32_t host = 0; host < hosts.rank_count(); ++host) {
    pieces.push_back(std::as_writable_bytes(frame_of(host)));
  }
  if (are_finite(left_out)) {
    std::vector<uint32_t> indices;
    select_top_k(left_out, top_k_count(density_, shard.size()), indices);
    write_sparse_frame(left_out, indices, frame_of(hosts.rank()));
    for (uint32_t index : indices) left_out[index] = 0;
  } else {
    write_refusal(shard.size(), frame_of(hosts.rank()));
  }
  SKEIN_RETURN_IF_ERROR(ring_gather(hosts, pieces));
  std::fill(shard.begin(), shard.end(), 0.0F);
  for (uint32_t host = 0; host < hosts.rank_count(); ++host) {
    SKEIN_RETURN_IF_ERROR(add_sparse_frame(frame_of(host), shard));
  }
  return absl::OkStatus();
}

}  // namespace skein::net
