#include "actors/replica/outgoing.hpp"

#include <utility>

namespace skein::actors {

void Outgoing::send(uint64_t now_us) {
  if (handed_over) on_tensor(*std::exchange(handed_over, std::nullopt), std::move(memory));
  sent.start_us = now_us;
  for (auto& [address, part] : parts) {
    if (on_sent) {
      // The owner goes when the bytes are in the socket: its end is the end of the send.
      auto at_end = [memory = memory, tell = on_sent, sent = sent](const void*) { tell(sent); };
      part.owner = std::shared_ptr<const void>(part.payload.data(), at_end);
    }
    plane->send(address, std::move(part));
  }
  if (tied) send_tied();
  parts.clear();
  memory.reset();
}

void Outgoing::send_tied() {
  const Tied sending = *std::exchange(tied, std::nullopt);
  if (sending.address.empty()) return on_tensor(sending.key, sending.values);
  net::DataPlane::Rows rows;
  rows.key = sending.key;
  rows.sender = sending.sender;
  rows.row_count = 1;
  rows.payload = *sending.values;
  rows.owner = sending.values;
  plane->send(sending.address, std::move(rows));
}

}  // namespace skein::actors
