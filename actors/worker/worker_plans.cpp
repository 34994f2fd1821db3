// From one plan to the next: halt, give and fetch state, prepare, form groups, start.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/collectives/group_reducer.hpp"
#include "actors/worker/worker.hpp"
#include "plans/base/bad_input.hpp"
#include "plans/collectives/communication_order.hpp"
#include "plans/collectives/reducer_kind.hpp"

namespace skein::actors {
namespace {

/// Sets of a kept stage's snapshots: the newest whole one, one that is arriving, and one more that
/// a slow coordinator has not let go yet.
constexpr uint32_t kSnapshotSets = 3;

/// A member waits in a collective for the slowest one: when that is for too long, and what to do,
/// is for the coordinator to say, which counts from the last progress and is first with this
/// factor.
constexpr double kPatience = 2;

bool has_layers(const HeldState& state, const plans::LayerRange& layers) {
  return static_cast<int64_t>(state.copies.size()) == layers.size();
}

}  // namespace

void WorkerState::on_halt(const net::Quiesce& order, uint64_t generation) {
  if (generation <= head.generation) return;  // A repeat.
  head.generation = generation;
  for (const auto& [group, parts] : groups) parts.abort();
  for (const auto& [group, parts] : stage_links) parts.abort();
  groups.clear();
  stage_links.clear();
  forming.clear();
  device_groups.clear();
  request.reset();
  awaited_layers.clear();
  arriving.clear();
  config.plane->close_before(generation);
  if (!prepared.empty() && !rank_actor) {
    // Of a plan that never started: its models hold the state they were given.
    prepared.clear();
  }
  if (retiring) return;  // Its end is on its way.
  if (!rank_actor) return tell_halted();
  retiring = true;
  self->send(*rank_actor,
             RetireRank{order.committed_steps, order.gradient_norm, order.committed_generation});
}

void WorkerState::on_retired(const RankRetired& retired) {
  if (!retiring) return;
  retiring = false;
  // An actor ignores a normal exit of another one, and whoever still holds it would keep it.
  self->unlink_from(rank_actor->address());
  self->send_exit(*rank_actor, caf::exit_reason::user_shutdown);
  rank_actor.reset();
  activity = {};
  for (const PreparedReplica& replica : retired.replicas) {
    // A plan that was prepared and never started has taken over the model of the one before.
    std::erase_if(held, [&](const HeldState& each) { return each.model == replica.model; });
    if (!retired.has_common_state) continue;  // It has a column's own, which is no step's.
    HeldState state;
    state.step = retired.steps_done;
    state.generation = retired.steps_done > first_step ? retired.generation : state_generation;
    state.layers = replica.options.layers;
    state.model = replica.model;
    state.options = replica.options;
    held.push_back(std::move(state));
  }
  tell_halted();
}

/// Copies that have lost a bit are not offered again: other sources, older ones perhaps, are used.
void WorkerState::drop_damaged() {
  std::erase_if(held, [this](const HeldState& each) {
    return std::any_of(each.copies.begin(), each.copies.end(), [this](const auto& copy) {
      return !check_layer_state(job.model, copy.first, *copy.second).ok();
    });
  });
}

void WorkerState::tell_halted() {
  reach(config.options.fail_point, FailPlace::kBeforeHalted);
  net::Quiesced quiesced;
  for (const HeldState& each : held) {
    quiesced.state_inventory.push_back({each.step, each.layers, each.generation});
  }
  tell(std::move(quiesced));
}

void WorkerState::on_assign(const net::Assign& assign) {
  if (plan.generation == head.generation || retiring) return;  // A repeat.
  if (assign.plan.generation != head.generation) return;
  if (absl::Status status = plans::validate(assign.plan, job.model); !status.ok()) {
    return tell_failed(status);
  }
  plan = assign.plan;
  addresses.clear();
  for (const net::Peer& peer : assign.peers) addresses[peer.worker] = peer.data_address;
  keepers = assign.keepers;
  keepers.resize(plan.stages.size());
  PrepareRequest next;
  next.worker = id();
  next.job = job;
  next.plan = plan;
  next.first_step = first_step = assign.restore.first_step;
  state_generation = assign.state_generation;
  next.from_checkpoint = assign.restore.from_checkpoint;
  next.load_path = assign.load_path;
  // State of the same step, but of a past that was rolled back while we were away.
  std::erase_if(held, [this](const HeldState& each) {
    return each.step == first_step && each.generation != state_generation;
  });
  next.held = held;
  next.data_bytes = assign.data_bytes;
  next.data_digest = assign.data_digest;
  next.data = data;
  next.device = device;
  request = std::move(next);
  send_layers(assign);
  fetch_layers(assign);
  keep_snapshots();
  try_prepare();
}

void WorkerState::send_layers(const net::Assign& assign) {
  SendStateRequest sending;
  for (const plans::LayerMove& move : assign.restore.moves) {
    if (move.from != id()) continue;
    const auto to = addresses.find(move.to);
    if (to != addresses.end()) sending.layers.emplace_back(move.layer, to->second);
  }
  if (sending.layers.empty()) return;
  sending.generation = plan.generation;
  sending.step = request->first_step;
  sending.model = job.model;
  sending.held = held;
  sending.plane = config.plane;
  sending.fail_point = config.options.fail_point;
  self->send(config.prepare, std::move(sending), PrepareListener(self));
}

void WorkerState::fetch_layers(const net::Assign& assign) {
  for (const plans::LayerMove& move : assign.restore.moves) {
    const int64_t layer = move.layer;
    if (move.to != id() || layer >= plans::layer_count(job.model)) continue;
    if (awaited_layers.insert(layer).second) open_stream(net::schema::TensorKind::STATE, layer, 1);
  }
}

/// Opens the streams of the snapshots that we keep for others.
void WorkerState::keep_snapshots() {
  for (size_t stage = 0; stage < keepers.size(); ++stage) {
    if (keepers[stage] != id()) continue;
    const plans::LayerRange& layers = plan.stages[stage].layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
      open_stream(net::schema::TensorKind::SNAPSHOT, layer, kSnapshotSets);
    }
  }
}

void WorkerState::open_stream(net::schema::TensorKind kind, int64_t layer, uint32_t tensors_max) {
  net::TensorInbox::StreamSpec stream;
  stream.generation = plan.generation;
  stream.receiver = static_cast<uint32_t>(layer);
  stream.kind = kind;
  stream.row_count = 1;
  stream.row_floats = static_cast<uint32_t>(layer_state_floats(job.model, layer));
  stream.tensors_max = tensors_max;
  stream.on_tensor = [to = Worker(self)](const net::TensorKey& key, net::TensorHandle tensor) {
    caf::anon_send(to, StateArrived{key, std::move(tensor)});
  };
  config.plane->inbox().open(std::move(stream));
}

void WorkerState::on_state(const StateArrived& arrived) {
  if (ended || arrived.key.generation != plan.generation) return;
  if (arrived.key.kind == net::schema::TensorKind::SNAPSHOT) return on_snapshot_layer(arrived);
  const int64_t layer = arrived.key.receiver;
  if (!request || arrived.key.step != request->first_step || awaited_layers.erase(layer) == 0) {
    return;
  }
  reach(config.options.fail_point, FailPlace::kDuringStateFetch);
  HeldState state;
  state.step = arrived.key.step;
  state.layers = {layer, layer + 1};
  state.copies[layer] = arrived.tensor;
  request->held.push_back(std::move(state));
  try_prepare();
}

void WorkerState::on_snapshot_layer(const StateArrived& arrived) {
  const int64_t layer = arrived.key.receiver;
  const auto stage = std::find_if(plan.stages.begin(), plan.stages.end(),
                                  [&](const auto& each) { return each.layers.contains(layer); });
  const auto number = static_cast<int32_t>(stage - plan.stages.begin());
  if (stage == plan.stages.end() || !check_layer_state(job.model, layer, *arrived.tensor).ok()) {
    return;  // Damaged: the set never becomes whole, and an older one is used.
  }
  HeldState& state = arriving[{number, arrived.key.step}];
  state.step = arrived.key.step;
  state.layers = stage->layers;
  state.copies[layer] = arrived.tensor;
  if (!has_layers(state, stage->layers)) return;
  SnapshotTaken whole{number, std::move(state)};
  arriving.erase({number, arrived.key.step});
  on_snapshot(whole);
}

/// A whole snapshot, of our own stage or one that we keep.
void WorkerState::on_snapshot(const SnapshotTaken& taken) {
  if (plan.generation != head.generation) return;  // Halted meanwhile: it would not be in the list.
  held.push_back(taken.state);
  const bool is_first = taken.state.step == first_step;  // What the plan began with.
  held.back().generation = is_first ? state_generation : plan.generation;
  tell(net::SnapshotKept{taken.stage, taken.state.step});
}

void WorkerState::try_prepare() {
  if (!request || !awaited_layers.empty()) return;
  PrepareRequest next = *std::move(request);
  request.reset();
  self->send(config.prepare, std::move(next), PrepareListener(self));
}

void WorkerState::on_prepared(const PreparedReplicas& result) {
  if (ended || result.generation != head.generation) return;
  if (result.data) data = result.data;
  if (absl::IsUnavailable(result.status)) {
    drop_damaged();
    return tell_trouble(result.status);
  }
  if (!result.status.ok()) return tell_failed(result.status);
  prepared = result.replicas;
  form_groups();
}

GroupRequest WorkerState::group_request(const net::GradientGroup::Options& options) const {
  GroupRequest request{options, {}, {}, id(), plan.generation, job.comm.backend, device};
  // Another member may be waiting for gigabytes of state. One that dies ends the generation.
  request.options.appear_timeout_seconds = job.comm.init_timeout_seconds;
  request.options.connect_timeout_seconds = job.elastic.heartbeat_timeout_seconds;
  request.options.timeout_seconds = kPatience * job.comm.train_timeout_seconds;
  request.options.bind_host = config.options.bind_address;
  for (const auto& [worker, address] : addresses) request.workers.insert(worker);
  const auto reducer = plans::parse_reducer_kind(job.sync.reducer);
  const bool adds_up = reducer.ok() && *reducer == plans::ReducerKind::kSum;
  for (const plans::ReductionGroup& group : plan.groups) {
    if (group.members.size() < 2) continue;
    FormationRound::Wanted& wanted = request.wanted[group.id];
    const bool is_sum = adds_up || group.scope == plans::GroupScope::kTied;
    wanted.use = is_sum ? FormationRound::Use::kSum : FormationRound::Use::kOtherReducer;
    for (plans::ReplicaId member : group.members) {
      wanted.members.push_back(plans::replica_of(plan, member).worker);
    }
  }
  if (!may_link()) return request;
  for (const plans::StagePair& pair : plans::linked_stages(plan)) {
    request.wanted[pair.group] = {plans::workers_of(plan, pair), FormationRound::Use::kActivations};
  }
  return request;
}

/// All workers of a plan answer alike: what they form together follows from it.
bool WorkerState::may_link() const { return job.comm.backend != "gloo" && !plan.in_columns; }

/// In the order of their numbers on every worker: forming one waits for all of its members.
void WorkerState::form_groups() {
  for (const PreparedReplica& replica : prepared) {
    for (plans::GroupId number : replica.groups) {
      const plans::ReductionGroup& group = plan.groups[number.value];
      const auto position = std::find(group.members.begin(), group.members.end(), replica.id);
      net::GradientGroup::Options options;
      options.name = absl::StrCat("generation-", plan.generation, "/group-", number.value);
      options.rank = static_cast<uint32_t>(position - group.members.begin());
      options.rank_count = static_cast<uint32_t>(group.members.size());
      options.reducer = group_reducer(job, plan, group, replica, addresses);
      absl::StatusOr<GroupParts> parts = config.parts.make_group(number, group_request(options));
      if (!parts.ok()) return tell_failed(parts.status());
      self->send(parts->io, FormGroup{plan.generation}, FormListener(self));
      groups[number] = *std::move(parts);
      forming.insert(number);
    }
  }
  form_links();
  if (forming.empty()) spawn_rank();
}

void WorkerState::form_links() {
  if (!config.parts.make_stage_link || !may_link()) return;
  for (const plans::StagePair& pair : plans::linked_stages(plan)) {
    const std::vector<plans::WorkerId> members = plans::workers_of(plan, pair);
    if (std::find(members.begin(), members.end(), id()) == members.end()) continue;
    net::GradientGroup::Options options;
    options.name =
        absl::StrCat("generation-", plan.generation, "/stages-", pair.front, "-", pair.front + 1);
    std::optional<StageLinkParts> parts =
        config.parts.make_stage_link(pair.group, group_request(options));
    if (!parts) continue;
    self->send(parts->io, FormGroup{plan.generation}, FormListener(self));
    stage_links[pair.group] = *std::move(parts);
    forming.insert(pair.group);
  }
}

void WorkerState::on_formed(const GroupFormed& formed) {
  if (ended || formed.generation != head.generation) return;
  // What the job asks for cannot be had here: another plan would not change that.
  if (plans::is_bad_input(formed.status)) return tell_failed(formed.status);
  if (!formed.status.ok()) return tell_trouble(formed.status);
  if (formed.is_on_device) device_groups.insert(formed.group);
  if (forming.erase(formed.group) > 0 && forming.empty()) spawn_rank();
}

void WorkerState::spawn_rank() {
  if (!prepared.empty()) {
    RankConfig next;
    next.job = job;
    next.plan = plan;
    next.first_step = first_step;
    next.replicas = prepared;
    next.data = data;
    next.device = device;
    next.shards = config.parts.make_shard_io(
        ShardIoConfig{run_folder, job.optimizer.name, static_cast<int>(plan.stages.size()),
                      config.plane, config.options.fail_point});
    for (const auto& [group, parts] : groups) next.groups[group] = parts.io;
    next.device_groups = device_groups;
    for (const plans::StagePair& pair : plans::linked_stages(plan)) {
      if (device_groups.contains(pair.group))
        next.links[pair.front] = stage_links.at(pair.group).io;
    }
    next.plane = config.plane;
    next.addresses = addresses;
    next.link = link;
    next.head = head;
    next.keepers = keepers;
    next.fail_point = config.options.fail_point;
    next.listener = RankListener(self);
    rank_actor = self->spawn<caf::linked>(rank, std::move(next));
  }
  prepared.clear();
  reach(config.options.fail_point, FailPlace::kBeforePrepared);
  tell(net::Prepared());
}

/// The plan is in force: the state of the one before is not needed any more, nor are snapshots of a
/// future that did not come.
void WorkerState::on_start(const net::Envelope& message) {
  std::erase_if(held, [&](const HeldState& each) { return each.model || each.step > first_step; });
  steps_done = first_step;
  if (rank_actor) self->send(*rank_actor, message);
}

void WorkerState::on_commit(const plans::CommitOrder& order) {
  steps_done = order.step + 1;
  std::erase_if(held, [&](const HeldState& each) { return each.step < order.snapshot_floor; });
}

}  // namespace skein::actors
