#include "net/reduce/top_k_all_to_all.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "net/reduce/pieces.hpp"
#include "net/reduce/ring.hpp"
#include "net/reduce/sparse_frame.hpp"
#include "net/reduce/top_k.hpp"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::net {
namespace {

/// The frame with the largest values of a shard, which is left without them.
std::vector<uint32_t> take_frame(double density, std::span<float> shard, bool is_refused) {
  const size_t k = top_k_count(density, shard.size());
  std::vector<uint32_t> frame(sparse_frame_words(k));
  if (is_refused) {
    write_refusal(shard.size(), frame);
    return frame;
  }
  std::vector<uint32_t> indices;
  select_top_k(shard, k, indices);
  write_sparse_frame(shard, indices, frame);
  for (uint32_t index : indices) shard[index] = 0;
  return frame;
}

}  // namespace

/// All frames are received before any is added up, so that sums do not depend on who is quick.
absl::Status TopKAllToAll::reduce(Exchange& exchange, std::span<float> values, size_t first) {
  SKEIN_CHECK(values.size() < std::numeric_limits<uint32_t>::max()) << values.size() << " floats";
  const uint32_t count = exchange.rank_count();
  const uint32_t rank = exchange.rank();
  std::vector<float>& left_out = left_out_[first];
  left_out.resize(values.size(), 0.0F);
  for (size_t i = 0; i < values.size(); ++i) left_out[i] += values[i];
  const bool is_refused = !are_finite(left_out);
  const std::span<float> sum = piece_of(values, rank, count);
  const size_t words = sparse_frame_words(top_k_count(density_, sum.size()));
  std::vector<std::vector<uint32_t>> frames(count);
  for (uint32_t round = 1; round < count; ++round) {
    const uint32_t to = (rank + round) % count;
    const uint32_t from = (rank + count - round) % count;
    const std::vector<uint32_t> sent =
        take_frame(density_, piece_of(left_out, to, count), is_refused);
    frames[from].resize(words);
    SKEIN_RETURN_IF_ERROR(exchange.move({to, std::as_bytes(std::span(sent))},
                                        {from, std::as_writable_bytes(std::span(frames[from]))}));
  }
  const std::span<float> own = piece_of(left_out, rank, count);
  absl::Status refusal;
  std::fill(sum.begin(), sum.end(), 0.0F);
  for (uint32_t each = 0; each < count; ++each) {
    if (each != rank) {
      refusal.Update(add_sparse_frame(frames[each], sum));
      continue;
    }
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
  }
  std::fill(own.begin(), own.end(), 0.0F);
  // The other ranks hear of it by the values.
  if (!refusal.ok()) std::fill(sum.begin(), sum.end(), std::numeric_limits<float>::quiet_NaN());
  std::vector<std::span<std::byte>> shards;
  for (uint32_t owner = 0; owner < count; ++owner) {
    shards.push_back(std::as_writable_bytes(piece_of(values, owner, count)));
  }
  SKEIN_RETURN_IF_ERROR(ring_gather(exchange, shards));
  SKEIN_RETURN_IF_ERROR(refusal);
  if (are_finite(values)) return absl::OkStatus();
  return absl::InvalidArgumentError("the sum of the members' gradients is not finite");
}

}  // namespace skein::net
