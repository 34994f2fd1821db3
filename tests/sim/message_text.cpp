#include "tests/sim/message_text.hpp"

#include <map>

#include "absl/strings/str_cat.h"

namespace skein::sim {
namespace {

using Body = net::schema::Envelope::Body;

const char* name_of(const Body::Reader& body) {
  static const std::map<Body::Which, const char*> kNames = {
      {Body::JOIN, "Join"},
      {Body::JOINED, "Joined"},
      {Body::REFUSED, "Refused"},
      {Body::QUIESCE, "Quiesce"},
      {Body::QUIESCED, "Quiesced"},
      {Body::ASSIGN, "Assign"},
      {Body::PREPARED, "Prepared"},
      {Body::START, "Start"},
      {Body::READY, "Ready"},
      {Body::EARLY_SIGNAL, "EarlySignal"},
      {Body::TOKEN_ORDER, "TokenOrder"},
      {Body::TOKEN_REPORT, "TokenReport"},
      {Body::REDUCED, "Reduced"},
      {Body::COMMIT, "Commit"},
      {Body::SNAPSHOT_KEPT, "SnapshotKept"},
      {Body::SHARD_SAVED, "ShardSaved"},
      {Body::SHARD_SENT, "ShardSent"},
      {Body::LAYERS_WANTED, "LayersWanted"},
      {Body::PEER_FAILURE, "PeerFailure"},
      {Body::CHECKPOINT_UNREADABLE, "CheckpointUnreadable"},
      {Body::FAILED, "Failed"},
      {Body::LEAVE, "Leave"},
      {Body::STOP, "Stop"},
      {Body::CLAIM, "Claim"},
      {Body::PIPELINE_COMMIT, "PipelineCommit"},
      {Body::AVERAGE, "Average"},
      {Body::AVERAGED, "Averaged"},
      {Body::ABORT, "Abort"},
      {Body::VALIDATED, "Validated"},
  };
  const auto found = kNames.find(body.which());
  return found == kNames.end() ? nullptr : found->second;
}

std::string detail_of_pipelines(const Body::Reader& body) {
  std::string detail;
  if (body.isClaim()) {
    detail = absl::StrCat(" step ", body.getClaim().getStep(), " samples ",
                          body.getClaim().getFirstSample(), "+", body.getClaim().getSampleCount());
  } else if (body.isPipelineCommit()) {
    const auto commit = body.getPipelineCommit();
    detail = absl::StrCat(" step ", commit.getStep(), " next samples ", commit.getNextSample(), "+",
                          commit.getNextCount());
  } else if (body.isAverage()) {
    const auto average = body.getAverage();
    detail = absl::StrCat(" ", average.getNumber(), average.getNonblocking() ? " non-blocking" : "",
                          average.getGlobal() ? " common" : "", " replica ", average.getReplica(),
                          " of");
    for (auto each : average.getMembers()) absl::StrAppend(&detail, " ", each.getReplica());
  } else if (body.isAveraged()) {
    detail = absl::StrCat(" ", body.getAveraged().getNumber(), " replica ",
                          body.getAveraged().getReplica(), body.getAveraged().getOk() ? "" : " no");
  } else if (body.isAbort()) {
    detail =
        absl::StrCat(" ", body.getAbort().getNumber(), " replica ", body.getAbort().getReplica());
  }
  return detail;
}

std::string detail_of(const Body::Reader& body) {
  std::string detail;
  if (body.isReady()) {
    detail = absl::StrCat(" replica ", body.getReady().getReplica(), " step ",
                          body.getReady().getStep());
  } else if (body.isCommit()) {
    detail = absl::StrCat(" ", body.getCommit().getStep());
  } else if (body.isQuiesce()) {
    detail = absl::StrCat(" committed ", body.getQuiesce().getCommittedSteps());
  } else if (body.isQuiesced()) {
    for (auto each : body.getQuiesced().getInventory()) {
      absl::StrAppend(&detail, " ", each.getLayerBegin(), "-", each.getLayerEnd(), "@",
                      each.getStep());
    }
  } else if (body.isAssign()) {
    detail = absl::StrCat(" from step ", body.getAssign().getFirstStep(), ", ",
                          body.getAssign().getMoves().size(), " moves",
                          body.getAssign().getFromCheckpoint() ? ", checkpoint" : "");
  } else if (body.isPeerFailure()) {
    detail = absl::StrCat(" ", body.getPeerFailure().getReason().cStr());
  } else if (body.isCheckpointUnreadable()) {
    detail = absl::StrCat(" ", body.getCheckpointUnreadable().getReason().cStr());
  } else if (body.isFailed()) {
    detail = absl::StrCat(" ", body.getFailed().getReason().cStr());
  } else if (body.isJoin()) {
    detail = absl::StrCat(" previous ", body.getJoin().getPreviousWorker());
  } else if (body.isJoined()) {
    detail = absl::StrCat(" worker ", body.getJoined().getWorker());
  } else {
    detail = detail_of_pipelines(body);
  }
  return detail;
}

}  // namespace

std::string to_text(const net::schema::Envelope::Reader& envelope) {
  const auto body = envelope.getBody();
  const char* name = name_of(body);
  if (name == nullptr) return "";
  return absl::StrCat(name, detail_of(body), " (g", envelope.getGeneration(), " t",
                      envelope.getTerm(), ")");
}

}  // namespace skein::sim
