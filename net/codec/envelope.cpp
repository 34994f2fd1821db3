#include "net/codec/envelope.hpp"

#include <utility>

#include <capnp/message.h>

#include "absl/strings/str_cat.h"
#include "net/codec/body_codec.hpp"

namespace skein::net {
namespace {

using Body = schema::Envelope::Body;

template <class Struct, class Reader>
absl::StatusOr<ControlBody> read_body(const char* name, Reader from) {
  Bounds bounds(name);
  Struct to;
  read(from, bounds, to);
  if (!bounds.status().ok()) return bounds.status();
  return to;
}

absl::StatusOr<ControlBody> decode_body(Body::Reader body) {
  switch (body.which()) {
    case Body::JOIN:
      return read_body<plans::JoinRequest>("Join", body.getJoin());
    case Body::JOINED:
      return read_body<Joined>("Joined", body.getJoined());
    case Body::REFUSED:
      return read_body<Refused>("Refused", body.getRefused());
    case Body::ASSIGN:
      return read_body<Assign>("Assign", body.getAssign());
    case Body::PREPARED:
      return read_body<Prepared>("Prepared", body.getPrepared());
    case Body::RENDEZVOUS:
      return read_body<RendezvousEntry>("Rendezvous", body.getRendezvous());
    case Body::START:
      return read_body<Start>("Start", body.getStart());
    case Body::READY:
      return read_body<plans::ReadyReport>("Ready", body.getReady());
    case Body::OBSOLETE_GROUP_START:
      break;
    case Body::REDUCED:
      return read_body<Reduced>("Reduced", body.getReduced());
    case Body::COMMIT:
      return read_body<plans::CommitOrder>("Commit", body.getCommit());
    case Body::VALIDATED:
      return read_body<Validated>("Validated", body.getValidated());
    case Body::SHARD_SAVED:
      return read_body<ShardSaved>("ShardSaved", body.getShardSaved());
    case Body::HEARTBEAT:
      return read_body<Heartbeat>("Heartbeat", body.getHeartbeat());
    case Body::HEARTBEAT_ACK:
      return read_body<HeartbeatAck>("HeartbeatAck", body.getHeartbeatAck());
    case Body::TIMINGS:
      return read_body<Timings>("Timings", body.getTimings());
    case Body::FAILED:
      return read_body<Failed>("Failed", body.getFailed());
    case Body::STOP:
      return read_body<Stop>("Stop", body.getStop());
    case Body::STATUS_REQUEST:
      return StatusRequest();
    case Body::STATUS:
      return read_body<Status>("Status", body.getStatus());
    case Body::PROFILE_REQUEST:
      return read_body<ProfileRequest>("ProfileRequest", body.getProfileRequest());
    case Body::PROFILED:
      return read_body<plans::MeasuredWorker>("Profiled", body.getProfiled());
    case Body::QUIESCE:
      return read_body<Quiesce>("Quiesce", body.getQuiesce());
    case Body::QUIESCED:
      return read_body<Quiesced>("Quiesced", body.getQuiesced());
    case Body::PEER_FAILURE:
      return read_body<PeerFailure>("PeerFailure", body.getPeerFailure());
    case Body::LEAVE:
      return read_body<Leave>("Leave", body.getLeave());
    case Body::DRAIN_REQUEST:
      return read_body<DrainRequest>("DrainRequest", body.getDrainRequest());
    case Body::SNAPSHOT_KEPT:
      return read_body<SnapshotKept>("SnapshotKept", body.getSnapshotKept());
    case Body::EMULATE:
      return read_body<Emulate>("Emulate", body.getEmulate());
    case Body::CLAIM:
      return read_body<Claim>("Claim", body.getClaim());
    case Body::PIPELINE_COMMIT:
      return read_body<plans::UpdateOrder>("PipelineCommit", body.getPipelineCommit());
    case Body::AVERAGE:
      return read_body<Average>("Average", body.getAverage());
    case Body::AVERAGED:
      return read_body<Averaged>("Averaged", body.getAveraged());
    case Body::ABORT:
      return read_body<AbortGroup>("Abort", body.getAbort());
    case Body::CHECKPOINT_UNREADABLE:
      return read_body<CheckpointUnreadable>("CheckpointUnreadable",
                                             body.getCheckpointUnreadable());
    case Body::EARLY_SIGNAL:
      return read_body<EarlySignal>("EarlySignal", body.getEarlySignal());
    case Body::SHARD_SENT:
      return read_body<ShardSent>("ShardSent", body.getShardSent());
    case Body::LAYERS_WANTED:
      return LayersWanted();
    case Body::TOKEN_ORDER:
      return read_body<plans::TokenOrder>("TokenOrder", body.getTokenOrder());
    case Body::TOKEN_REPORT:
      return read_body<TokenReport>("TokenReport", body.getTokenReport());
    case Body::TEXT_REQUEST:
      return read_body<plans::TextRequest>("TextRequest", body.getTextRequest());
    case Body::TEXT_ROOM:
      return read_body<plans::TextRoom>("TextRoom", body.getTextRoom());
    case Body::TEXT_LAYERS:
      return read_body<plans::TextLayers>("TextLayers", body.getTextLayers());
    case Body::TEXT_READY:
      return plans::TextReady();
    case Body::TEXT_STEP:
      return read_body<plans::TextStep>("TextStep", body.getTextStep());
  }
  return absl::InvalidArgumentError(
      absl::StrCat("Envelope.body is of an unknown kind, ", static_cast<int>(body.which())));
}

/// Sets the member of the union that belongs to a struct.
struct BodyWriter {
  Body::Builder to;

  void operator()(const plans::JoinRequest& from) { write(from, to.initJoin()); }
  void operator()(const Joined& from) { write(from, to.initJoined()); }
  void operator()(const Refused& from) { write(from, to.initRefused()); }
  void operator()(const Assign& from) { write(from, to.initAssign()); }
  void operator()(const Prepared& from) { write(from, to.initPrepared()); }
  void operator()(const LayersWanted&) { to.initLayersWanted(); }
  void operator()(const RendezvousEntry& from) { write(from, to.initRendezvous()); }
  void operator()(const Start& from) { write(from, to.initStart()); }
  void operator()(const plans::ReadyReport& from) { write(from, to.initReady()); }
  void operator()(const Reduced& from) { write(from, to.initReduced()); }
  void operator()(const EarlySignal& from) { write(from, to.initEarlySignal()); }
  void operator()(const plans::CommitOrder& from) { write(from, to.initCommit()); }
  void operator()(const Validated& from) { write(from, to.initValidated()); }
  void operator()(const ShardSaved& from) { write(from, to.initShardSaved()); }
  void operator()(const ShardSent& from) { write(from, to.initShardSent()); }
  void operator()(const Heartbeat& from) { write(from, to.initHeartbeat()); }
  void operator()(const HeartbeatAck& from) { write(from, to.initHeartbeatAck()); }
  void operator()(const Timings& from) { write(from, to.initTimings()); }
  void operator()(const Failed& from) { write(from, to.initFailed()); }
  void operator()(const Stop& from) { write(from, to.initStop()); }
  void operator()(const StatusRequest&) { to.setStatusRequest(); }
  void operator()(const Status& from) { write(from, to.initStatus()); }
  void operator()(const ProfileRequest& from) { write(from, to.initProfileRequest()); }
  void operator()(const plans::MeasuredWorker& from) { write(from, to.initProfiled()); }
  void operator()(const Quiesce& from) { write(from, to.initQuiesce()); }
  void operator()(const Quiesced& from) { write(from, to.initQuiesced()); }
  void operator()(const PeerFailure& from) { write(from, to.initPeerFailure()); }
  void operator()(const Leave& from) { write(from, to.initLeave()); }
  void operator()(const DrainRequest& from) { write(from, to.initDrainRequest()); }
  void operator()(const SnapshotKept& from) { write(from, to.initSnapshotKept()); }
  void operator()(const Emulate& from) { write(from, to.initEmulate()); }
  void operator()(const Claim& from) { write(from, to.initClaim()); }
  void operator()(const plans::UpdateOrder& from) { write(from, to.initPipelineCommit()); }
  void operator()(const Average& from) { write(from, to.initAverage()); }
  void operator()(const Averaged& from) { write(from, to.initAveraged()); }
  void operator()(const AbortGroup& from) { write(from, to.initAbort()); }
  void operator()(const plans::TokenOrder& from) { write(from, to.initTokenOrder()); }
  void operator()(const TokenReport& from) { write(from, to.initTokenReport()); }
  void operator()(const plans::TextRequest& from) { write(from, to.initTextRequest()); }
  void operator()(const plans::TextRoom& from) { write(from, to.initTextRoom()); }
  void operator()(const plans::TextLayers& from) { write(from, to.initTextLayers()); }
  void operator()(const plans::TextReady&) { to.setTextReady(); }
  void operator()(const plans::TextStep& from) { write(from, to.initTextStep()); }
  void operator()(const CheckpointUnreadable& from) { write(from, to.initCheckpointUnreadable()); }
};

}  // namespace

absl::StatusOr<Envelope> decode(const ControlMessage& message) {
  const auto from = *message;
  Bounds bounds("Envelope");
  Envelope to;
  to.head.generation = bounds.count("generation", from.getGeneration(), kGenerationsMax);
  to.head.term = bounds.count("term", from.getTerm(), kTermsMax);
  to.head.sender = bounds.worker_or_none("sender", from.getSender()).value;
  to.head.receiver = bounds.worker_or_none("receiver", from.getReceiver()).value;
  to.head.trace_high = from.getTraceHigh();
  to.head.trace_low = from.getTraceLow();
  if (!bounds.status().ok()) return bounds.status();
  absl::StatusOr<ControlBody> body = decode_body(from.getBody());
  if (!body.ok()) return body.status();
  to.body = *std::move(body);
  return to;
}

ControlMessage encode(const EnvelopeHead& head, const ControlBody& body) {
  capnp::MallocMessageBuilder message;
  auto to = message.initRoot<schema::Envelope>();
  to.setGeneration(head.generation);
  to.setTerm(head.term);
  to.setSender(head.sender);
  to.setReceiver(head.receiver);
  to.setTraceHigh(head.trace_high);
  to.setTraceLow(head.trace_low);
  std::visit(BodyWriter{to.getBody()}, body);
  return ControlMessage::encode(message);
}

}  // namespace skein::net
