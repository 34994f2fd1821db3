#pragma once

#include "net/codec/bounds.hpp"
#include "net/codec/envelope.hpp"

namespace skein::net {

// One pair for each message. `read` leaves in `bounds` what is wrong; what it has read is then of
// no use.

// membership.cpp
void read(schema::Join::Reader from, Bounds& bounds, plans::JoinRequest& to);
void write(const plans::JoinRequest& from, schema::Join::Builder to);
void read(schema::Joined::Reader from, Bounds& bounds, Joined& to);
void write(const Joined& from, schema::Joined::Builder to);
void read(schema::Refused::Reader from, Bounds& bounds, Refused& to);
void write(const Refused& from, schema::Refused::Builder to);
void read(schema::Heartbeat::Reader from, Bounds& bounds, Heartbeat& to);
void write(const Heartbeat& from, schema::Heartbeat::Builder to);
void read(schema::HeartbeatAck::Reader from, Bounds& bounds, HeartbeatAck& to);
void write(const HeartbeatAck& from, schema::HeartbeatAck::Builder to);
void read(schema::Failed::Reader from, Bounds& bounds, Failed& to);
void write(const Failed& from, schema::Failed::Builder to);
void read(schema::PeerFailure::Reader from, Bounds& bounds, PeerFailure& to);
void write(const PeerFailure& from, schema::PeerFailure::Builder to);
void read(schema::CheckpointUnreadable::Reader from, Bounds& bounds, CheckpointUnreadable& to);
void write(const CheckpointUnreadable& from, schema::CheckpointUnreadable::Builder to);
void read(schema::Leave::Reader from, Bounds& bounds, Leave& to);
void write(const Leave& from, schema::Leave::Builder to);
void read(schema::DrainRequest::Reader from, Bounds& bounds, DrainRequest& to);
void write(const DrainRequest& from, schema::DrainRequest::Builder to);
void read(schema::Stop::Reader from, Bounds& bounds, Stop& to);
void write(const Stop& from, schema::Stop::Builder to);
void read(schema::Emulate::Reader from, Bounds& bounds, Emulate& to);
void write(const Emulate& from, schema::Emulate::Builder to);

// plans.cpp
using PeerList = capnp::List<schema::Peer>;
void read(PeerList::Reader from, Bounds& bounds, std::vector<Peer>& to);
void write(const std::vector<Peer>& from, PeerList::Builder to);  // As many elements.
void read(schema::Quiesce::Reader from, Bounds& bounds, Quiesce& to);
void write(const Quiesce& from, schema::Quiesce::Builder to);
void read(schema::Quiesced::Reader from, Bounds& bounds, Quiesced& to);
void write(const Quiesced& from, schema::Quiesced::Builder to);
void read(schema::Assign::Reader from, Bounds& bounds, Assign& to);
void write(const Assign& from, schema::Assign::Builder to);
void read(schema::Rendezvous::Reader from, Bounds& bounds, RendezvousEntry& to);
void write(const RendezvousEntry& from, schema::Rendezvous::Builder to);
void read(schema::Start::Reader from, Bounds& bounds, Start& to);
void write(const Start& from, schema::Start::Builder to);
void read(schema::SnapshotKept::Reader from, Bounds& bounds, SnapshotKept& to);
void write(const SnapshotKept& from, schema::SnapshotKept::Builder to);

// steps.cpp
void read(schema::Ready::Reader from, Bounds& bounds, plans::ReadyReport& to);
void write(const plans::ReadyReport& from, schema::Ready::Builder to);
void read(schema::TokenOrder::Reader from, Bounds& bounds, plans::TokenOrder& to);
void write(const plans::TokenOrder& from, schema::TokenOrder::Builder to);
void read(schema::TokenReport::Reader from, Bounds& bounds, TokenReport& to);
void write(const TokenReport& from, schema::TokenReport::Builder to);
void read(schema::EarlySignal::Reader from, Bounds& bounds, EarlySignal& to);
void write(const EarlySignal& from, schema::EarlySignal::Builder to);
void read(schema::Reduced::Reader from, Bounds& bounds, Reduced& to);
void write(const Reduced& from, schema::Reduced::Builder to);
void read(schema::Commit::Reader from, Bounds& bounds, plans::CommitOrder& to);
void write(const plans::CommitOrder& from, schema::Commit::Builder to);
void read(schema::Validated::Reader from, Bounds& bounds, Validated& to);
void write(const Validated& from, schema::Validated::Builder to);
void read(schema::ShardSaved::Reader from, Bounds& bounds, ShardSaved& to);
void write(const ShardSaved& from, schema::ShardSaved::Builder to);
void read(schema::ShardSent::Reader from, Bounds& bounds, ShardSent& to);
void write(const ShardSent& from, schema::ShardSent::Builder to);
void read(schema::Timings::Reader from, Bounds& bounds, Timings& to);
void write(const Timings& from, schema::Timings::Builder to);

// local_updates.cpp
void read(schema::Claim::Reader from, Bounds& bounds, Claim& to);
void write(const Claim& from, schema::Claim::Builder to);
void read(schema::Prepared::Reader from, Bounds& bounds, Prepared& to);
void write(const Prepared& from, schema::Prepared::Builder to);
void read(schema::PipelineCommit::Reader from, Bounds& bounds, plans::UpdateOrder& to);
void write(const plans::UpdateOrder& from, schema::PipelineCommit::Builder to);
void read(schema::Average::Reader from, Bounds& bounds, Average& to);
void write(const Average& from, schema::Average::Builder to);
void read(schema::Averaged::Reader from, Bounds& bounds, Averaged& to);
void write(const Averaged& from, schema::Averaged::Builder to);
void read(schema::Abort::Reader from, Bounds& bounds, AbortGroup& to);
void write(const AbortGroup& from, schema::Abort::Builder to);

// profile.cpp
void read(schema::ProfileRequest::Reader from, Bounds& bounds, ProfileRequest& to);
void write(const ProfileRequest& from, schema::ProfileRequest::Builder to);
void read(schema::Profiled::Reader from, Bounds& bounds, plans::MeasuredWorker& to);
void write(const plans::MeasuredWorker& from, schema::Profiled::Builder to);

// text.cpp
void read(schema::TextRequest::Reader from, Bounds& bounds, plans::TextRequest& to);
void write(const plans::TextRequest& from, schema::TextRequest::Builder to);
void read(schema::TextRoom::Reader from, Bounds& bounds, plans::TextRoom& to);
void write(const plans::TextRoom& from, schema::TextRoom::Builder to);
void read(schema::TextLayers::Reader from, Bounds& bounds, plans::TextLayers& to);
void write(const plans::TextLayers& from, schema::TextLayers::Builder to);
void read(schema::TextStep::Reader from, Bounds& bounds, plans::TextStep& to);
void write(const plans::TextStep& from, schema::TextStep::Builder to);

// status.cpp
void read(schema::Status::Reader from, Bounds& bounds, Status& to);
void write(const Status& from, schema::Status::Builder to);

}  // namespace skein::net
