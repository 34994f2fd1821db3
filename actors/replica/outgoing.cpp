#include "actors/replica/outgoing.hpp"

namespace skein::actors {

void Outgoing::send(uint64_t now_us) {
  sent.start_us = now_us;
  for (auto& [address, part] : parts) {
    if (on_sent) {
      // The owner goes when the bytes are in the socket: its end is the end of the send.
      auto at_end = [memory = memory, tell = on_sent, sent = sent](const void*) { tell(sent); };
      part.owner = std::shared_ptr<const void>(part.payload.data(), at_end);
    }
    plane->send(address, std::move(part));
  }
  parts.clear();
  memory.reset();
}

}  // namespace skein::actors
