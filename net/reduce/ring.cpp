#include "net/reduce/ring.hpp"

#include "net/reduce/pieces.hpp"
#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::net {
namespace {

template <class Number>
absl::Status sum_around(Exchange& exchange, std::span<Number> values) {
  const uint32_t count = exchange.rank_count();
  const uint32_t rank = exchange.rank();
  auto piece = [&](uint32_t index) {
    const FloatRange range = piece_of(values.size(), index % count, count);
    return values.subspan(range.begin, range.count());
  };
  std::vector<Number> received(piece(0).size());
  for (uint32_t round = 0; round + 1 < count; ++round) {
    const std::span<Number> mine = piece(rank + count - round);
    const std::span<Number> next = piece(rank + 2 * count - round - 1);
    const std::span<Number> arrived(received.data(), next.size());
    SKEIN_RETURN_IF_ERROR(
        exchange.move({(rank + 1) % count, std::as_bytes(mine)},
                      {(rank + count - 1) % count, std::as_writable_bytes(arrived)}));
    for (size_t i = 0; i < next.size(); ++i) next[i] += arrived[i];
  }
  std::vector<std::span<std::byte>> pieces;
  for (uint32_t owner = 0; owner < count; ++owner) {
    pieces.push_back(std::as_writable_bytes(piece(owner + 1)));  // Where its sum came together.
  }
  return ring_gather(exchange, pieces);
}

}  // namespace

absl::Status ring_sum(Exchange& exchange, std::span<float> values) {
  return sum_around(exchange, values);
}

absl::Status ring_sum_float64(Exchange& exchange, std::span<double> values) {
  return sum_around(exchange, values);
}

absl::Status ring_gather(Exchange& exchange, const std::vector<std::span<std::byte>>& pieces) {
  const uint32_t count = exchange.rank_count();
  const uint32_t rank = exchange.rank();
  SKEIN_CHECK(pieces.size() == count) << pieces.size() << " pieces for " << count << " ranks";
  for (uint32_t round = 0; round + 1 < count; ++round) {
    SKEIN_RETURN_IF_ERROR(
        exchange.move({(rank + 1) % count, pieces[(rank + count - round) % count]},
                      {(rank + count - 1) % count, pieces[(rank + count - round - 1) % count]}));
  }
  return absl::OkStatus();
}

}  // namespace skein::net
