#include "net/reduce/half_sum.hpp"

#include <vector>

#include "absl/strings/str_cat.h"
#include "net/reduce/pieces.hpp"
#include "net/reduce/ring.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::net {
namespace {

absl::Status check_head(HalfFormat format, std::span<const uint16_t> words) {
  if (is_encoded_half(format, words)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a member sent halves of format ", words[0], ", exponent ", words[1], " instead of format ",
      static_cast<uint16_t>(format), "; give all members the same sync.reducer"));
}

}  // namespace

absl::Status half_sum(Exchange& exchange, HalfFormat format, std::span<float> values) {
  const uint32_t count = exchange.rank_count();
  const uint32_t rank = exchange.rank();
  if (count == 1) return absl::OkStatus();
  auto piece = [&](uint32_t index) { return piece_of(values, index, count); };
  const std::span<float> own = piece(rank);
  const size_t slot_words = piece(0).size() + kHalfHeadWords;
  std::vector<uint16_t> sent(slot_words);
  std::vector<uint16_t> received(slot_words);
  for (uint32_t round = 1; round < count; ++round) {
    const uint32_t to = (rank + round) % count;
    const uint32_t from = (rank + count - round) % count;
    const std::span<uint16_t> out(sent.data(), piece(to).size() + kHalfHeadWords);
    const std::span<uint16_t> in(received.data(), own.size() + kHalfHeadWords);
    encode_half(format, piece(to), out);
    SKEIN_RETURN_IF_ERROR(
        exchange.move({to, std::as_bytes(out)}, {from, std::as_writable_bytes(in)}));
    SKEIN_RETURN_IF_ERROR(check_head(format, in));
    add_half(in, own);
  }
  std::vector<uint16_t> sums(slot_words * count);
  std::vector<std::span<std::byte>> slots;
  auto slot = [&](uint32_t owner) {
    return std::span(sums).subspan(owner * slot_words, piece(owner).size() + kHalfHeadWords);
  };
  for (uint32_t owner = 0; owner < count; ++owner) {
    slots.push_back(std::as_writable_bytes(slot(owner)));
  }
  encode_half(format, own, slot(rank));
  SKEIN_RETURN_IF_ERROR(ring_gather(exchange, slots));
  for (uint32_t owner = 0; owner < count; ++owner) {
    SKEIN_RETURN_IF_ERROR(check_head(format, slot(owner)));
    decode_half(slot(owner), piece(owner));
  }
  return absl::OkStatus();
}

}  // namespace skein::net
