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
      {Body::HALT, "Halt"},
      {Body::HALTED, "Halted"},
      {Body::ASSIGN, "Assign"},
      {Body::PREPARED, "Prepared"},
      {Body::START, "Start"},
      {Body::READY, "Ready"},
      {Body::REDUCED, "Reduced"},
      {Body::COMMIT, "Commit"},
      {Body::SNAPSHOT_KEPT, "SnapshotKept"},
      {Body::SHARD_SAVED, "ShardSaved"},
      {Body::TROUBLE, "Trouble"},
      {Body::FAILED, "Failed"},
      {Body::LEAVE, "Leave"},
      {Body::STOP, "Stop"},
      {Body::LEASE, "Lease"},
      {Body::COLUMN_COMMIT, "ColumnCommit"},
      {Body::COMBINE, "Combine"},
      {Body::COMBINED, "Combined"},
      {Body::DISSOLVE, "Dissolve"},
      {Body::VALIDATED, "Validated"},
  };
  const auto found = kNames.find(body.which());
  return found == kNames.end() ? nullptr : found->second;
}

std::string detail_of_columns(const Body::Reader& body) {
  std::string detail;
  if (body.isLease()) {
    detail = absl::StrCat(" step ", body.getLease().getStep(), " samples ",
                          body.getLease().getFirstSample(), "+", body.getLease().getSampleCount());
  } else if (body.isColumnCommit()) {
    const auto commit = body.getColumnCommit();
    detail = absl::StrCat(" step ", commit.getStep(), " next samples ", commit.getNextSample(), "+",
                          commit.getNextCount());
  } else if (body.isCombine()) {
    const auto combine = body.getCombine();
    detail = absl::StrCat(" ", combine.getNumber(), combine.getPassive() ? " passive" : "",
                          combine.getCommon() ? " common" : "", " replica ", combine.getReplica(),
                          " of");
    for (auto each : combine.getMembers()) absl::StrAppend(&detail, " ", each.getReplica());
  } else if (body.isCombined()) {
    detail = absl::StrCat(" ", body.getCombined().getNumber(), " replica ",
                          body.getCombined().getReplica(), body.getCombined().getOk() ? "" : " no");
  } else if (body.isDissolve()) {
    detail = absl::StrCat(" ", body.getDissolve().getNumber(), " replica ",
                          body.getDissolve().getReplica());
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
  } else if (body.isHalt()) {
    detail = absl::StrCat(" committed ", body.getHalt().getCommittedSteps());
  } else if (body.isHalted()) {
    for (auto each : body.getHalted().getHoldings()) {
      absl::StrAppend(&detail, " ", each.getLayerBegin(), "-", each.getLayerEnd(), "@",
                      each.getStep());
    }
  } else if (body.isAssign()) {
    detail = absl::StrCat(" from step ", body.getAssign().getFirstStep(), ", ",
                          body.getAssign().getMoves().size(), " moves",
                          body.getAssign().getFromCheckpoint() ? ", checkpoint" : "");
  } else if (body.isTrouble()) {
    detail = absl::StrCat(" ", body.getTrouble().getReason().cStr());
  } else if (body.isFailed()) {
    detail = absl::StrCat(" ", body.getFailed().getReason().cStr());
  } else if (body.isJoin()) {
    detail = absl::StrCat(" previous ", body.getJoin().getPreviousWorker());
  } else if (body.isJoined()) {
    detail = absl::StrCat(" worker ", body.getJoined().getWorker());
  } else {
    detail = detail_of_columns(body);
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
