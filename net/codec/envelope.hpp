#pragma once

#include <cstdint>
#include <memory>
#include <variant>

#include "absl/status/statusor.h"
#include "net/codec/local_updates.hpp"
#include "net/codec/membership.hpp"
#include "net/codec/plans.hpp"
#include "net/codec/profile.hpp"
#include "net/codec/status.hpp"
#include "net/codec/steps.hpp"
#include "net/control/wire.hpp"
#include "net/schema/control.capnp.h"
#include "plans/text/text_messages.hpp"

namespace skein::net {

/// A control message as it travels.
using ControlMessage = Wire<schema::Envelope>;

/// What every control message says beside its body.
struct EnvelopeHead {
  uint64_t generation = 0;  // Plan in force at the sender; 0: none yet. kGenerationsMax.
  uint64_t term = 0;        // Coordinator's life; 0: the sender knows none yet. kTermsMax.
  uint32_t sender = 0;      // Worker id; 0: the coordinator, or a worker that has none yet.
  uint32_t receiver = 0;    // Worker id; 0: the coordinator.
  uint64_t trace_high = 0;  // W3C trace id: any 128 bits.
  uint64_t trace_low = 0;
  bool operator==(const EnvelopeHead&) const = default;
};

/// Every message of the schema's union, in its order; none for those that are obsolete.
using ControlBody =
    std::variant<plans::JoinRequest, Joined, Refused, Assign, Prepared, RendezvousEntry, Start,
                 plans::ReadyReport, Reduced, plans::CommitOrder, Validated, ShardSaved, Heartbeat,
                 HeartbeatAck, Timings, Failed, Stop, StatusRequest, Status, ProfileRequest,
                 plans::MeasuredWorker, Quiesce, Quiesced, PeerFailure, Leave, DrainRequest,
                 SnapshotKept, Emulate, Claim, plans::UpdateOrder, Average, Averaged, AbortGroup,
                 CheckpointUnreadable, EarlySignal, ShardSent, LayersWanted, plans::TokenOrder,
                 TokenReport, plans::TextRequest, plans::TextRoom, plans::TextLayers,
                 plans::TextReady, plans::TextStep>;

/// A control message as handlers see it.
struct Envelope {
  EnvelopeHead head;
  ControlBody body;
  /// Held by the message and its copies: the link that read it reads on when they are gone.
  std::shared_ptr<const void> receipt = nullptr;
  bool operator==(const Envelope& other) const { return head == other.head && body == other.body; }
};

/// Called once, where bytes become a message: the links do it.
/// InvalidArgument   names the message, the first field that is out of its bounds (those of
///                   net/codec/bounds.hpp), its value and what is allowed, as
///                   "Timings.slices[3].track is 9, less than 6".
absl::StatusOr<Envelope> decode(const ControlMessage& message);

/// Reasons are cut to what the receiver accepts; all else is within the bounds, or the receiver
/// closes the link.
ControlMessage encode(const EnvelopeHead& head, const ControlBody& body);

}  // namespace skein::net
