#pragma once

#include <capnp/message.h>

#include "net/control/control_link.hpp"

namespace skein::net {

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
