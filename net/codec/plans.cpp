#include "net/codec/plans.hpp"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net/codec/body_codec.hpp"

namespace skein::net {
namespace {

void read_plan(capnp::Text::Reader from, Bounds& bounds, plans::Plan& to) {
  const std::string text = bounds.lines("plan", from, kPlanBytesMax);
  if (!bounds.status().ok()) return;
  absl::StatusOr<plans::Plan> plan = plans::parse_plan(text);
  if (plan.ok() && plan->generation > kGenerationsMax) {
    bounds.refuse(
        "plan", absl::StrCat("is of generation ", plan->generation, ", at most ", kGenerationsMax));
  } else if (plan.ok()) {
    to = *std::move(plan);
  } else {
    bounds.refuse("plan", absl::StrCat("is none: ", std::string(plan.status().message())));
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
  read_plan(from.getPlan(), bounds, to.plan);
  read(from.getPeers(), bounds, to.peers);
  to.restore.first_step = bounds.count("firstStep", from.getFirstStep(), kStepsMax);
  to.restore.from_checkpoint = from.getFromCheckpoint();
  read_moves(from.getMoves(), bounds, to.restore.moves);
  to.load_path = bounds.text("loadPath", from.getLoadPath(), kPathBytesMax);
  to.data_bytes = bounds.count("dataBytes", from.getDataBytes(), kBytesMax);
  to.data_digest = from.getDataDigest();
  const auto snapshot_peers = from.getSnapshotPeers();
  const unsigned count = bounds.size("snapshotPeers", snapshot_peers.size(), kStagesMax);
  to.snapshot_peers.reserve(count);
  for (unsigned i = 0; i < count; ++i) {
    const auto in = bounds.element("snapshotPeers", i);
    to.snapshot_peers.push_back(bounds.worker_or_none("", snapshot_peers[i]));
  }
  to.state_generation = bounds.count("stateGeneration", from.getStateGeneration(), kGenerationsMax);
  to.config_digest = from.getConfigDigest();
}

void write(const Assign& from, schema::Assign::Builder to) {
  to.setPlan(plans::to_text(from.plan));
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
  for (unsigned i = 0; i < snapshot_peers.size(); ++i)
    snapshot_peers.set(i, from.snapshot_peers[i].value);
  to.setStateGeneration(from.state_generation);
  to.setConfigDigest(from.config_digest);
}

void read(schema::Rendezvous::Reader from, Bounds& bounds, RendezvousEntry& to) {
  to.key = bounds.text("key", from.getKey(), kKeyBytesMax);
  to.value = bounds.bytes("value", from.getValue(), kRendezvousBytesMax);
}

void write(const RendezvousEntry& from, schema::Rendezvous::Builder to) {
  to.setKey(from.key);
  auto value = to.initValue(static_cast<unsigned>(from.value.size()));
  std::copy(from.value.begin(), from.value.end(), reinterpret_cast<char*>(value.begin()));
}

void read(schema::Start::Reader from, Bounds&, Start& to) {
  to.validate = from.getValidate();
  to.checkpoint = from.getCheckpoint();
  to.last = from.getLast();
  to.snapshot = from.getSnapshot();
}

void write(const Start& from, schema::Start::Builder to) {
  to.setValidate(from.validate);
  to.setCheckpoint(from.checkpoint);
  to.setLast(from.last);
  to.setSnapshot(from.snapshot);
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
