#pragma once

#include <cstdint>

#include <capnp/message.h>

#include "net/control/control_link.hpp"

namespace skein::net {

/// What every control message says beside its body.
struct EnvelopeHead {
  uint64_t generation = 0;
  uint64_t term = 0;
  uint32_t sender = 0;
  uint32_t receiver = 0;
  uint64_t trace_high = 0;
  uint64_t trace_low = 0;
};

/// Encodes a control message: `fill` gets the builder of the body's union and sets one member.
template <class Fill>
ControlMessage make_envelope(const EnvelopeHead& head, Fill fill) {
  capnp::MallocMessageBuilder message;
  auto envelope = message.initRoot<schema::Envelope>();
  envelope.setGeneration(head.generation);
  envelope.setTerm(head.term);
  envelope.setSender(head.sender);
  envelope.setReceiver(head.receiver);
  envelope.setTraceHigh(head.trace_high);
  envelope.setTraceLow(head.trace_low);
  fill(envelope.getBody());
  return ControlMessage::encode(message);
}

}  // namespace skein::net
