#include "net/codec/plans.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net/codec/body_codec.hpp"
#include "plans/schedule/schedule_csv.hpp"

namespace skein::net {
namespace {

void read_actions(capnp::Text::Reader from, Bounds& bounds, plans::ActionList& to) {
  const std::string text = bounds.text("actions", from, kActionsBytesMax);
  if (text.empty() || !bounds.status().ok()) return;
  absl::StatusOr<plans::Schedule> parsed = plans::parse_csv(text);
  if (parsed.ok() && parsed->size() == 1) {
    to = std::move(parsed->front());
  } else {
    bounds.refuse("actions", "are no list of actions");
  }
}

using EndList = capnp::List<uint64_t>;

void read_ends(const char* field, EndList::Reader from, Bounds& bounds, std::vector<uint64_t>& to) {
  const unsigned count = bounds.size(field, from.size(), kEndsMax);
  to.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    const auto in = bounds.element(field, i);
    to.push_back(bounds.count("", from[i], plans::kEndMax));
  }
}

void write_ends(const std::vector<uint64_t>& from, EndList::Builder to) {
  for (unsigned i = 0; i < to.size(); ++i) to.set(i, from[i]);
}

void read(schema::StagePart::Reader from, Bounds& bounds, plans::StagePart& to) {
  to.stage = bounds.stage("stage", from.getStage());
  to.layers = bounds.layers("layerBegin", from.getLayerBegin(), from.getLayerEnd());
  to.first = bounds.replica("first", from.getFirst());
  to.replica_count = bounds.signed_count("replicaCount", from.getReplicaCount(), kReplicasMax);
  const auto replicas = from.getReplicas();
  const unsigned count = bounds.size("replicas", replicas.size(), kReplicasMax);
  to.replicas.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    const auto in = bounds.element("replicas", i);
    const auto each = replicas[i];
    to.replicas.push_back(
        {bounds.replica("replica", each.getReplica()),
         bounds.worker("worker", each.getWorker()),
         {bounds.signed_count("rowBegin", each.getRowBegin(), kRowsMax),
          bounds.signed_count("rowCount", each.getRowCount(), kRowsMax)},
         static_cast<int32_t>(bounds.count("rank", each.getRank(), kReplicasMax))});
  }
  read_ends("forwardEnds", from.getForwardEnds(), bounds, to.ends.forward);
  read_ends("backwardEnds", from.getBackwardEnds(), bounds, to.ends.backward);
  to.ends.last = bounds.count("lastEnd", from.getLastEnd(), plans::kEndMax);
}

void write(const plans::StagePart& from, schema::StagePart::Builder to) {
  to.setStage(static_cast<uint32_t>(from.stage));
  to.setLayerBegin(static_cast<uint32_t>(from.layers.begin));
  to.setLayerEnd(static_cast<uint32_t>(from.layers.end));
  to.setFirst(from.first.value);
  to.setReplicaCount(static_cast<uint32_t>(from.replica_count));
  auto replicas = to.initReplicas(static_cast<unsigned>(from.replicas.size()));
  for (unsigned i = 0; i < replicas.size(); ++i) {
    const plans::ReplicaPlan& each = from.replicas[i];
    replicas[i].setReplica(each.id.value);
    replicas[i].setWorker(each.worker.value);
    replicas[i].setRowBegin(static_cast<uint32_t>(each.rows.begin));
    replicas[i].setRowCount(static_cast<uint32_t>(each.rows.count));
    replicas[i].setRank(static_cast<uint32_t>(each.rank));
  }
  const plans::StageEnds& ends = from.ends;
  write_ends(ends.forward, to.initForwardEnds(static_cast<unsigned>(ends.forward.size())));
  write_ends(ends.backward, to.initBackwardEnds(static_cast<unsigned>(ends.backward.size())));
  to.setLastEnd(ends.last);
}

void read(schema::GroupPart::Reader from, Bounds& bounds, plans::GroupPart& to) {
  to.id.value = static_cast<uint32_t>(bounds.count("group", from.getGroup(), kStagesMax));
  to.scope = from.getTied() ? plans::GroupScope::kTied : plans::GroupScope::kStage;
  to.member = bounds.replica("member", from.getMember());
  to.rank = static_cast<uint32_t>(bounds.index("rank", from.getRank(), kReplicasMax));
  to.rank_count =
      static_cast<uint32_t>(bounds.count("rankCount", from.getRankCount(), kReplicasMax));
  const auto partners = from.getPartners();
  const unsigned count = bounds.size("partners", partners.size(), kReplicasMax);
  for (unsigned i = 0; i < count; ++i) {
    const auto in = bounds.element("partners", i);
    const auto rank =
        static_cast<uint32_t>(bounds.index("rank", partners[i].getRank(), kReplicasMax));
    to.partners[rank] = bounds.worker("worker", partners[i].getWorker());
  }
}

void write(const plans::GroupPart& from, schema::GroupPart::Builder to) {
  to.setGroup(from.id.value);
  to.setTied(from.scope == plans::GroupScope::kTied);
  to.setMember(from.member.value);
  to.setRank(from.rank);
  to.setRankCount(from.rank_count);
  auto partners = to.initPartners(static_cast<unsigned>(from.partners.size()));
  unsigned i = 0;
  for (const auto& [rank, worker] : from.partners) {
    partners[i].setRank(rank);
    partners[i++].setWorker(worker.value);
  }
}

void read(schema::DeviceGroupPart::Reader from, Bounds& bounds, plans::DeviceGroupPart& to) {
  // Behind as many reductions as stages, and one, are as many pairs of stages.
  to.id.value = static_cast<uint32_t>(bounds.count("group", from.getGroup(), 2 * kStagesMax));
  to.use = static_cast<plans::DeviceUse>(bounds.index("use", from.getUse(), plans::kDeviceUses));
  to.front = bounds.stage("front", from.getFront());
  const auto rank = static_cast<uint32_t>(bounds.index("rank", from.getRank(), kReplicasMax));
  if (from.getIsMember()) to.rank = rank;
  to.rank_count =
      static_cast<uint32_t>(bounds.count("rankCount", from.getRankCount(), kReplicasMax));
  const auto neighbours = from.getNeighbours();
  const unsigned count = bounds.size("neighbours", neighbours.size(), kReplicasMax);
  for (unsigned i = 0; i < count; ++i) {
    const auto in = bounds.element("neighbours", i);
    to.neighbours[bounds.worker("worker", neighbours[i].getWorker())] =
        static_cast<uint32_t>(bounds.index("rank", neighbours[i].getRank(), kReplicasMax));
  }
  const auto members = from.getMembers();
  to.members.resize(bounds.size("members", members.size(), kReplicasMax));
  for (unsigned i = 0; i < to.members.size(); ++i) {
    const auto in = bounds.element("members", i);
    to.members[i] = bounds.worker("", members[i]);
  }
}

void write(const plans::DeviceGroupPart& from, schema::DeviceGroupPart::Builder to) {
  to.setGroup(from.id.value);
  to.setUse(static_cast<uint8_t>(from.use));
  to.setFront(static_cast<uint32_t>(from.front));
  to.setIsMember(from.rank.has_value());
  to.setRank(from.rank.value_or(0));
  to.setRankCount(from.rank_count);
  auto neighbours = to.initNeighbours(static_cast<unsigned>(from.neighbours.size()));
  unsigned i = 0;
  for (const auto& [worker, rank] : from.neighbours) {
    neighbours[i].setWorker(worker.value);
    neighbours[i++].setRank(rank);
  }
  auto members = to.initMembers(static_cast<unsigned>(from.members.size()));
  for (unsigned j = 0; j < members.size(); ++j) members.set(j, from.members[j].value);
}

void read(schema::PlanPart::Reader from, Bounds& bounds, plans::PlanPart& to) {
  const auto in = bounds.inside("plan");
  to.generation = bounds.count("generation", from.getGeneration(), kGenerationsMax);
  to.mode = bounds.name("mode", from.getMode());
  to.microbatch_count =
      bounds.signed_count("microbatchCount", from.getMicrobatchCount(), kMicrobatchesMax);
  to.microbatch_rows = bounds.signed_count("microbatchRows", from.getMicrobatchRows(), kRowsMax);
  to.recompute = from.getRecompute();
  to.stage_count =
      static_cast<int32_t>(bounds.count("stageCount", from.getStageCount(), kStagesMax));
  to.worker_max =
      static_cast<uint32_t>(bounds.count("workerMax", from.getWorkerMax(), plans::kWorkerIdMax));
  const auto stages = from.getStages();
  to.stages.resize(bounds.size("stages", stages.size(), kStagesMax));
  for (unsigned i = 0; i < to.stages.size(); ++i) {
    const auto element = bounds.element("stages", i);
    read(stages[i], bounds, to.stages[i]);
  }
  const auto groups = from.getGroups();
  to.groups.resize(bounds.size("groups", groups.size(), kStagesMax));
  for (unsigned i = 0; i < to.groups.size(); ++i) {
    const auto element = bounds.element("groups", i);
    read(groups[i], bounds, to.groups[i]);
  }
  read_actions(from.getActions(), bounds, to.actions);
  to.device_leader = bounds.worker_or_none("deviceLeader", from.getDeviceLeader());
  const auto device_groups = from.getDeviceGroups();
  to.device_groups.resize(bounds.size("deviceGroups", device_groups.size(), kStagesMax));
  for (unsigned i = 0; i < to.device_groups.size(); ++i) {
    const auto element = bounds.element("deviceGroups", i);
    read(device_groups[i], bounds, to.device_groups[i]);
  }
}

void write(const plans::PlanPart& from, schema::PlanPart::Builder to) {
  to.setGeneration(from.generation);
  to.setMode(from.mode);
  to.setMicrobatchCount(static_cast<uint32_t>(from.microbatch_count));
  to.setMicrobatchRows(static_cast<uint32_t>(from.microbatch_rows));
  to.setRecompute(from.recompute);
  to.setStageCount(static_cast<uint32_t>(from.stage_count));
  to.setWorkerMax(from.worker_max);
  auto stages = to.initStages(static_cast<unsigned>(from.stages.size()));
  for (unsigned i = 0; i < stages.size(); ++i) write(from.stages[i], stages[i]);
  auto groups = to.initGroups(static_cast<unsigned>(from.groups.size()));
  for (unsigned i = 0; i < groups.size(); ++i) write(from.groups[i], groups[i]);
  std::string actions = plans::to_csv({from.actions});
  actions.pop_back();
  to.setActions(actions);
  to.setDeviceLeader(from.device_leader.value);
  auto device_groups = to.initDeviceGroups(static_cast<unsigned>(from.device_groups.size()));
  for (unsigned i = 0; i < device_groups.size(); ++i)
    write(from.device_groups[i], device_groups[i]);
}

void read_snapshot_peers(capnp::List<schema::SnapshotPeer>::Reader from, Bounds& bounds,
                         std::map<int32_t, plans::WorkerId>& to) {
  const unsigned count = bounds.size("snapshotPeers", from.size(), kStagesMax);
  for (unsigned i = 0; i < count; ++i) {
    const auto in = bounds.element("snapshotPeers", i);
    const int32_t stage = bounds.stage("stage", from[i].getStage());
    to[stage] = bounds.worker("worker", from[i].getWorker());
  }
}

void read_moves(capnp::List<schema::LayerMove>::Reader from, Bounds& bounds,
                std::vector<plans::LayerMove>& to) {
  const unsigned count = bounds.size("moves", from.size(), kMovesMax);
  to.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    const auto in = bounds.element("moves", i);
    const auto move = from[i];
    to.push_back({static_cast<int64_t>(bounds.index("layer", move.getLayer(), kLayersMax)),
                  bounds.worker("from", move.getFrom()), bounds.worker("to", move.getTo())});
  }
}

}  // namespace

void read(PeerList::Reader from, Bounds& bounds, std::vector<Peer>& to) {
  const unsigned count = bounds.size("peers", from.size(), kPeersMax);
  to.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    const auto in = bounds.element("peers", i);
    const auto peer = from[i];
    to.push_back({bounds.worker("worker", peer.getWorker()),
                  bounds.name("dataAddress", peer.getDataAddress())});
  }
}

void write(const std::vector<Peer>& from, PeerList::Builder to) {
  for (unsigned i = 0; i < to.size(); ++i) {
    to[i].setWorker(from[i].worker.value);
    to[i].setDataAddress(from[i].data_address);
  }
}

void read(schema::Quiesce::Reader from, Bounds& bounds, Quiesce& to) {
  to.committed_steps = bounds.count("committedSteps", from.getCommittedSteps(), kStepsMax);
  to.gradient_norm = bounds.norm("gradientNorm", from.getGradientNorm());
  to.committed_generation =
      bounds.count("committedGeneration", from.getCommittedGeneration(), kGenerationsMax);
}

void write(const Quiesce& from, schema::Quiesce::Builder to) {
  to.setCommittedSteps(from.committed_steps);
  to.setGradientNorm(from.gradient_norm);
  to.setCommittedGeneration(from.committed_generation);
}

void read(schema::Quiesced::Reader from, Bounds& bounds, Quiesced& to) {
  const auto list = from.getInventory();
  const unsigned count = bounds.size("inventory", list.size(), kInventoryMax);
  to.state_inventory.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    const auto in = bounds.element("inventory", i);
    const auto each = list[i];
    to.state_inventory.push_back(
        {bounds.count("step", each.getStep(), kStepsMax),
         bounds.layers("layerBegin", each.getLayerBegin(), each.getLayerEnd()),
         bounds.count("generation", each.getGeneration(), kGenerationsMax)});
  }
}

void write(const Quiesced& from, schema::Quiesced::Builder to) {
  auto list = to.initInventory(static_cast<unsigned>(from.state_inventory.size()));
  for (unsigned i = 0; i < list.size(); ++i) {
    const plans::InventoryItem& each = from.state_inventory[i];
    list[i].setStep(each.step);
    list[i].setLayerBegin(static_cast<uint32_t>(each.layers.begin));
    list[i].setLayerEnd(static_cast<uint32_t>(each.layers.end));
    list[i].setGeneration(each.generation);
  }
}

void read(schema::Assign::Reader from, Bounds& bounds, Assign& to) {
  read(from.getPlan(), bounds, to.plan);
  read(from.getPeers(), bounds, to.peers);
  to.restore.first_step = bounds.count("firstStep", from.getFirstStep(), kStepsMax);
  to.restore.from_checkpoint = from.getFromCheckpoint();
  read_moves(from.getMoves(), bounds, to.restore.moves);
  to.load_path = bounds.text("loadPath", from.getLoadPath(), kPathBytesMax);
  to.data_bytes = bounds.count("dataBytes", from.getDataBytes(), kBytesMax);
  to.data_digest = from.getDataDigest();
  read_snapshot_peers(from.getSnapshotPeers(), bounds, to.snapshot_peers);
  to.state_generation = bounds.count("stateGeneration", from.getStateGeneration(), kGenerationsMax);
  to.config_digest = from.getConfigDigest();
  to.secret = from.getSecret();
}

void write(const Assign& from, schema::Assign::Builder to) {
  write(from.plan, to.initPlan());
  write(from.peers, to.initPeers(static_cast<unsigned>(from.peers.size())));
  to.setFirstStep(from.restore.first_step);
  to.setFromCheckpoint(from.restore.from_checkpoint);
  auto moves = to.initMoves(static_cast<unsigned>(from.restore.moves.size()));
  for (unsigned i = 0; i < moves.size(); ++i) {
    const plans::LayerMove& move = from.restore.moves[i];
    moves[i].setLayer(static_cast<uint32_t>(move.layer));
    moves[i].setFrom(move.from.value);
    moves[i].setTo(move.to.value);
  }
  to.setLoadPath(from.load_path);
  to.setDataBytes(from.data_bytes);
  to.setDataDigest(from.data_digest);
  auto snapshot_peers = to.initSnapshotPeers(static_cast<unsigned>(from.snapshot_peers.size()));
  unsigned next = 0;
  for (const auto& [stage, worker] : from.snapshot_peers) {
    snapshot_peers[next].setStage(static_cast<uint32_t>(stage));
    snapshot_peers[next++].setWorker(worker.value);
  }
  to.setStateGeneration(from.state_generation);
  to.setConfigDigest(from.config_digest);
  to.setSecret(from.secret);
}

void read(schema::Rendezvous::Reader from, Bounds& bounds, RendezvousEntry& to) {
  to.key = bounds.text("key", from.getKey(), kKeyBytesMax);
  to.value = bounds.bytes("value", from.getValue(), kRendezvousBytesMax);
  const auto receivers = from.getReceivers();
  const unsigned count = bounds.size("receivers", receivers.size(), kMembersMax);
  to.receivers.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    const auto in = bounds.element("receivers", i);
    to.receivers.push_back(bounds.worker("", receivers[i]));
  }
}

void write(const RendezvousEntry& from, schema::Rendezvous::Builder to) {
  to.setKey(from.key);
  auto value = to.initValue(static_cast<unsigned>(from.value.size()));
  std::copy(from.value.begin(), from.value.end(), reinterpret_cast<char*>(value.begin()));
  auto receivers = to.initReceivers(static_cast<unsigned>(from.receivers.size()));
  for (unsigned i = 0; i < receivers.size(); ++i) receivers.set(i, from.receivers[i].value);
}

void read(schema::Prepared::Reader from, Bounds& bounds, Prepared& to) {
  to.turns.head = bounds.count("turnHead", from.getTurnHead(), plans::kTurnPositionMax);
  to.turns.has_turns = from.getHasTurns();
}

void write(const Prepared& from, schema::Prepared::Builder to) {
  to.setTurnHead(from.turns.head);
  to.setHasTurns(from.turns.has_turns);
}

void read(schema::Start::Reader from, Bounds& bounds, Start& to) {
  to.validate = from.getValidate();
  to.checkpoint = from.getCheckpoint();
  to.last = from.getLast();
  to.snapshot = from.getSnapshot();
  to.turn = bounds.count("turn", from.getTurn(), plans::kTurnPositionMax);
}

void write(const Start& from, schema::Start::Builder to) {
  to.setValidate(from.validate);
  to.setCheckpoint(from.checkpoint);
  to.setLast(from.last);
  to.setSnapshot(from.snapshot);
  to.setTurn(from.turn);
}

void read(schema::SnapshotKept::Reader from, Bounds& bounds, SnapshotKept& to) {
  to.stage = bounds.stage("stage", from.getStage());
  to.step = bounds.count("step", from.getStep(), kStepsMax);
}

void write(const SnapshotKept& from, schema::SnapshotKept::Builder to) {
  to.setStage(static_cast<uint32_t>(from.stage));
  to.setStep(from.step);
}

}  // namespace skein::net
