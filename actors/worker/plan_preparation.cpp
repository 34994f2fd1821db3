#include "actors/worker/plan_preparation.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/collectives/group_reducer.hpp"
#include "plans/base/bad_input.hpp"
#include "plans/base/check.hpp"

namespace skein::actors {
namespace {

/// Sets of a kept stage's snapshots: the newest whole one, one that is arriving, and one more that
/// a slow coordinator has not let go yet.
constexpr uint32_t kSnapshotSets = 3;

/// A member waits in a collective for the slowest one: when that is for too long, and what to do,
/// is for the coordinator to say, which counts from the last progress and is first with this
/// factor.
constexpr double kPatience = 2;
/// Peers whose links are watched: of a group of thousands those with the next numbers, which are
/// watched by others in turn.
constexpr size_t kWatchedMax = 64;

}  // namespace

PlanPreparation::PlanPreparation(Options options, StateStore& store)
    : options_(std::move(options)), store_(store) {}

void PlanPreparation::begin(const Host& host, net::Assign assignment) {
  SKEIN_CHECK(!has_plan()) << "plan " << assignment.plan.generation << " comes in plan "
                           << plan().generation;
  host_ = host;
  assignment_ = std::move(assignment);
  addresses_.clear();
  for (const net::Peer& peer : assignment_.peers) addresses_[peer.worker] = peer.data_address;
  step_ = Step::kFetching;
  store_.drop_rolled_back(first_step(), assignment_.state_generation);
  watch_peers();
  send_layers();
  fetch_layers();
  keep_snapshots();
  try_prepare();
}

/// Notices in about a lease that somebody whom we need cannot be reached.
void PlanPreparation::watch_peers() const {
  const std::set<plans::WorkerId> needed = exchange_peers();
  std::vector<std::string> watched;
  auto next = addresses().upper_bound(host_.self);
  for (size_t seen = 0; seen < addresses().size() && watched.size() < kWatchedMax; ++seen) {
    if (next == addresses().end()) next = addresses().begin();
    if (needed.contains(next->first)) watched.push_back(next->second);
    ++next;
  }
  if (watched.empty()) return;
  options_.plane->watch(plan().generation, std::move(watched),
                        host_.job.elastic.heartbeat_timeout_seconds);
}

/// With whom we exchange activations, gradients, state or snapshots.
std::set<plans::WorkerId> PlanPreparation::exchange_peers() const {
  const std::vector<plans::WorkerId> named = plans::peers_in(plan(), host_.self);
  std::set<plans::WorkerId> peers(named.begin(), named.end());
  for (const plans::LayerMove& move : assignment_.restore.moves) peers.insert({move.from, move.to});
  for (const auto& [stage, peer] : assignment_.snapshot_peers) {
    if (takes_snapshots(stage)) peers.insert(peer);
  }
  peers.erase(host_.self);
  return peers;
}

bool PlanPreparation::takes_snapshots(int32_t stage) const {
  const std::vector<plans::ReplicaPlan> hosted = plans::hosted_by(plan(), host_.self);
  const plans::ReplicaId first = plans::stage_at(plan(), stage).first;
  return std::any_of(hosted.begin(), hosted.end(),
                     [&](const plans::ReplicaPlan& each) { return each.id == first; });
}

void PlanPreparation::send_layers() {
  SendStateRequest sending;
  for (const plans::LayerMove& move : assignment_.restore.moves) {
    const auto to = addresses().find(move.to);
    if (move.from != host_.self || to == addresses().end()) continue;
    sending.layers.emplace_back(move.layer, to->second);
  }
  if (sending.layers.empty()) return;
  sending.generation = plan().generation;
  sending.step = first_step();
  sending.model = host_.job.model;
  sending.held = store_.held();
  sending.plane = options_.plane;
  sending.fail_point = options_.fail_point;
  options_.send_state(std::move(sending));
}

void PlanPreparation::fetch_layers() {
  for (const plans::LayerMove& move : assignment_.restore.moves) {
    if (move.to != host_.self || move.layer >= plans::layer_count(host_.job.model)) continue;
    if (awaited_.insert(move.layer).second) {
      open_stream(net::schema::TensorKind::STATE, move.layer, 1);
    }
  }
}

/// The coordinator sees the checkpoint that the plan starts with, and this worker does not.
void PlanPreparation::fetch_from_coordinator() {
  is_served_ = true;
  step_ = Step::kFetching;
  for (const int64_t layer : plans::hosted_layers(plan().stages, host_.self)) {
    if (!awaited_.insert(layer).second) continue;
    open_stream(net::schema::TensorKind::STATE, layer, 1, plans::WorkerId{});
  }
  options_.want_layers();
}

/// Opens the streams of the snapshots that we keep for others.
void PlanPreparation::keep_snapshots() {
  for (const auto& [stage, peer] : assignment_.snapshot_peers) {
    if (peer != host_.self || takes_snapshots(stage)) continue;
    const plans::LayerRange& layers = plans::stage_at(plan(), stage).layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
      open_stream(net::schema::TensorKind::SNAPSHOT, layer, kSnapshotSets);
    }
  }
}

void PlanPreparation::open_stream(net::schema::TensorKind kind, int64_t layer, uint32_t tensors_max,
                                  std::optional<plans::WorkerId> sender) {
  net::TensorInbox::StreamSpec stream;
  stream.generation = plan().generation;
  stream.receiver = static_cast<uint32_t>(layer);
  stream.kind = kind;
  stream.row_count = 1;
  stream.row_floats = static_cast<uint64_t>(layer_state_floats(host_.job.model, layer));
  stream.tensors_max = tensors_max;
  stream.sender = sender;
  stream.on_tensor = options_.on_state;
  options_.plane->inbox().open(std::move(stream));
}

std::optional<SnapshotTaken> PlanPreparation::on_layer(const StateArrived& arrived) {
  if (!has_plan() || arrived.key.generation != plan().generation) return std::nullopt;
  if (arrived.key.kind == net::schema::TensorKind::SNAPSHOT) {
    return store_.on_layer(host_.job.model, plan(), arrived);
  }
  const int64_t layer = arrived.key.receiver;
  if (step_ != Step::kFetching || arrived.key.step != first_step() || awaited_.erase(layer) == 0) {
    return std::nullopt;
  }
  reach(options_.fail_point, FailPlace::kDuringStateFetch);
  HeldState state;
  state.step = arrived.key.step;
  state.layers = {layer, layer + 1};
  state.copies[layer] = arrived.tensor;
  fetched_.push_back(std::move(state));
  try_prepare();
  return std::nullopt;
}

void PlanPreparation::try_prepare() {
  if (step_ != Step::kFetching || !awaited_.empty()) return;
  step_ = Step::kPreparing;
  PrepareRequest request;
  request.worker = host_.self;
  request.job = host_.job;
  request.plan = plan();
  request.reduces_gradients = host_.reduces_gradients;
  request.passes_in_flight = host_.passes_in_flight;
  request.first_step = first_step();
  request.from_checkpoint = assignment_.restore.from_checkpoint && !is_served_;
  request.load_path = assignment_.load_path;
  request.run_folder = host_.run_folder;
  request.run = host_.run;
  if (!is_served_) request.held = store_.held();  // Else only what the checkpoint has counts.
  request.held.insert(request.held.end(), fetched_.begin(), fetched_.end());
  std::copy_if(store_.held().begin(), store_.held().end(), std::back_inserter(request.on_device),
               [](const HeldState& each) { return each.model != nullptr; });
  request.data_bytes = assignment_.data_bytes;
  request.data_digest = assignment_.data_digest;
  request.data = data_;
  request.device = host_.device;
  if (!host_.device->info().is_host_memory) {
    for (const plans::DeviceGroupPart& pair : links_here()) request.linked.push_back(pair.front);
  }
  options_.prepare(std::move(request));
}

void PlanPreparation::on_prepared(const PreparedReplicas& result) {
  if (step_ != Step::kPreparing || result.generation != plan().generation) return;
  if (result.data) data_ = result.data;
  if (!result.moved.empty()) {
    store_.replace_models(result.moved);
    step_ = Step::kFetching;
    return try_prepare();
  }
  if (absl::IsUnavailable(result.status)) {
    keep_fetched();
    store_.drop_damaged(host_.job.model);
    return give_up(options_.peer_failure, result.status);
  }
  if (result.is_checkpoint_unseen) return fetch_from_coordinator();
  if (result.is_checkpoint_unreadable)
    return give_up(options_.checkpoint_unreadable, result.status);
  if (!result.status.ok()) {
    keep_fetched();
    return give_up(options_.fail, result.status);
  }
  prepared_ = result.replicas;
  fetched_.clear();
  step_ = Step::kForming;
  form_groups(result);
}

/// In the order of their numbers on every worker: forming one waits for all of its members.
void PlanPreparation::form_groups(const PreparedReplicas& result) {
  for (const PreparedReplica& replica : prepared_) {
    for (plans::GroupId number : replica.groups) {
      const plans::GroupPart& group = plans::group_at(plan(), number);
      net::GradientGroup::Options options;
      options.name = absl::StrCat("generation-", plan().generation, "/group-", number.value);
      options.rank = group.rank;
      options.rank_count = group.rank_count;
      options.partners = group.partners;
      options.reducer =
          group_reducer(host_.job, plan(), group, replica, addresses(), options_.plane->address());
      absl::StatusOr<GroupParts> parts = options_.parts.make_group(number, group_request(options));
      if (!parts.ok()) return give_up(options_.fail, parts.status());
      options_.form_group(parts->io);
      groups_[number] = *std::move(parts);
      forming_.insert(number);
    }
  }
  form_links(result);
  try_end();
}

/// Those that this worker is on one side of.
std::vector<plans::DeviceGroupPart> PlanPreparation::links_here() const {
  std::vector<plans::DeviceGroupPart> links;
  if (!may_share_devices()) return links;
  std::copy_if(plan().device_groups.begin(), plan().device_groups.end(), std::back_inserter(links),
               [](const plans::DeviceGroupPart& each) {
                 return each.rank && each.use == plans::DeviceUse::kActivations;
               });
  return links;
}

void PlanPreparation::form_links(const PreparedReplicas& result) {
  if (!options_.parts.make_stage_link) return;
  for (const plans::DeviceGroupPart& pair : links_here()) {
    net::GradientGroup::Options options;
    options.name =
        absl::StrCat("generation-", plan().generation, "/stages-", pair.front, "-", pair.front + 1);
    GroupRequest request = group_request(options);
    const auto own = result.links.find(pair.front);
    if (own != result.links.end()) request.tensors = own->second;
    const auto taken = result.link_memory.find(pair.front);
    if (taken != result.link_memory.end()) request.memory = taken->second;
    std::optional<StageLinkParts> parts = options_.parts.make_stage_link(pair.id, request);
    if (!parts) continue;
    options_.form_link(parts->io);
    links_[pair.id] = *std::move(parts);
    forming_.insert(pair.id);
  }
}

GroupRequest PlanPreparation::group_request(const net::GradientGroup::Options& options) const {
  const plans::JobSpec& job = host_.job;
  GroupRequest request{options,
                       host_.self,
                       plan().generation,
                       may_share_devices() ? job.comm.backend : "gloo",
                       plan().device_leader,
                       plan().device_groups,
                       host_.device};
  // Another member may be waiting for gigabytes of state. One that dies ends the generation.
  request.options.appear_timeout_seconds = job.comm.init_timeout_seconds;
  request.options.connect_timeout_seconds = job.elastic.heartbeat_timeout_seconds;
  request.options.timeout_seconds = kPatience * job.comm.train_timeout_seconds;
  request.options.bind_host = options_.bind_address;
  return request;
}

/// All workers of a plan answer alike: what they form together follows from it.
bool PlanPreparation::may_share_devices() const {
  return plan().device_leader.value != 0 && host_.job.comm.backend != "gloo" &&
         host_.reduces_gradients;
}

void PlanPreparation::on_formed(const GroupFormed& formed) {
  if (step_ != Step::kForming || formed.generation != plan().generation) return;
  // What the job asks for, or memory, cannot be had here: another plan would not change that.
  if (plans::is_bad_input(formed.status) || absl::IsResourceExhausted(formed.status)) {
    return give_up(options_.fail, formed.status);
  }
  if (!formed.status.ok()) return give_up(options_.peer_failure, formed.status);
  if (formed.is_on_device) device_groups_.insert(formed.group);
  if (formed.memory) link_memory_[formed.group] = formed.memory;
  if (forming_.erase(formed.group) > 0) try_end();
}

void PlanPreparation::try_end() {
  if (!forming_.empty()) return;
  step_ = Step::kPrepared;
  options_.on_ready();
}

/// The coordinator will say what comes instead.
void PlanPreparation::give_up(const std::function<void(const absl::Status&)>& tell,
                              const absl::Status& why) {
  step_ = Step::kFailed;
  forming_.clear();
  tell(why);
}

void PlanPreparation::hand_over(ReplicaConfig& to) {
  SKEIN_CHECK(step_ == Step::kPrepared && hosts_replicas()) << "nothing is prepared";
  to.job = host_.job;
  to.plan = plan();
  to.first_step = first_step();
  to.replicas = std::exchange(prepared_, {});
  to.data = data_;
  to.device = host_.device;
  to.work = host_.work;
  for (const auto& [group, parts] : groups_) to.groups[group] = parts.io;
  to.device_groups = device_groups_;
  for (const plans::DeviceGroupPart& pair : links_here()) {
    if (!device_groups_.contains(pair.id)) continue;
    to.links[pair.front] = links_.at(pair.id).io;
    to.link_memory[pair.front] = std::exchange(link_memory_.at(pair.id), nullptr);
  }
  to.plane = options_.plane;
  to.addresses = addresses();
  for (const auto& [stage, peer] : assignment_.snapshot_peers) {
    const auto address = addresses().find(peer);
    if (peer == host_.self) {
      to.snapshot_addresses[stage] = std::nullopt;
    } else if (address != addresses().end()) {
      to.snapshot_addresses[stage] = address->second;
    }
  }
  to.fail_point = options_.fail_point;
}

uint64_t PlanPreparation::generation_of(uint64_t steps) const {
  return steps > first_step() ? plan().generation : assignment_.state_generation;
}

void PlanPreparation::keep_fetched() {
  store_.keep_fetched(std::exchange(fetched_, {}), assignment_.state_generation);
}

/// What came for a plan that never started may be all that is left of that state. The first weights
/// of all are nobody's.
void PlanPreparation::keep_unstarted() {
  if (first_step() == 0) return;
  keep_fetched();
  if (prepared_.empty()) return;
  ReplicasRetired unstarted;
  unstarted.replicas = prepared_;
  unstarted.steps_done = first_step();
  store_.keep_models(unstarted, assignment_.state_generation);
}

void PlanPreparation::end() {
  keep_unstarted();
  for (const auto& [group, parts] : groups_) parts.abort();
  for (const auto& [group, parts] : links_) parts.abort();
  groups_.clear();
  links_.clear();
  forming_.clear();
  device_groups_.clear();
  link_memory_.clear();
  fetched_.clear();
  awaited_.clear();
  is_served_ = false;
  prepared_.clear();
  step_ = Step::kNone;
}

void PlanPreparation::check_invariants() const {
  SKEIN_CHECK(step_ == Step::kFetching || awaited_.empty())
      << "layers are awaited in step " << static_cast<int>(step_);
  SKEIN_CHECK(step_ == Step::kFetching || step_ == Step::kPreparing || fetched_.empty())
      << "fetched layers are in no model in step " << static_cast<int>(step_);
  SKEIN_CHECK(step_ == Step::kForming || forming_.empty()) << "groups form that nobody awaits";
  SKEIN_CHECK(step_ >= Step::kForming || (prepared_.empty() && groups_.empty() && links_.empty()))
      << "replicas are prepared in step " << static_cast<int>(step_);
}

}  // namespace skein::actors
