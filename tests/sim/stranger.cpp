#include "tests/sim/stranger.hpp"

#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "actors/worker/layer_state.hpp"
#include "plans/base/check.hpp"
#include "plans/plan/layout_plan.hpp"

namespace skein::sim {
namespace {

constexpr std::string_view kStream = "strangers";
constexpr double kConnectSeconds = 10;
constexpr uint64_t kReconnectUs = 1'000'000;
/// Fewer than a loop has: how often newcomers may come and go is checked with those.
constexpr int kConnectionsMax = 3;
constexpr uint64_t kBeatUs = 500'000;
constexpr uint64_t kLieUsMax = 400'000;
constexpr uint64_t kReplicas = 6;
constexpr uint64_t kStages = 4;
constexpr float kForgedValue = 3;

SimulatedPlane::Options plane_options(const World& world, ProcessId process) {
  SimulatedPlane::Options options;
  options.process = process;
  options.address = absl::StrCat(world.name(process), ":1");
  options.on_peer_lost = options.on_unreachable = [](const std::string&, const absl::Status&) {};
  return options;
}

}  // namespace

Stranger::Stranger(Surroundings& around, std::string name, uint64_t seed, Options options)
    : around_(around),
      options_(options),
      rng_(seed, plans::random_stream(kStream.data(), kStream.size())),
      process_(around.world.add_process(std::move(name))),
      plane_(around.world, around.network, around.planes, plane_options(around.world, process_)) {
  connect();
}

void Stranger::connect() {
  if (++connections_ > kConnectionsMax) return;
  self_ = {};
  net::ControlLink::Handlers handlers = {[this](net::Envelope message) { on_message(message); },
                                         [this](const absl::Status&) {
                                           link_ = nullptr;
                                           around_.world.after(kReconnectUs, process_,
                                                               [this] { connect(); });
                                         }};
  around_.network.connect(process_, kConnectSeconds, std::move(handlers),
                          [this, connection = connections_](auto link) {
                            if (!link.ok()) return;
                            link_ = *link;
                            if (options_.joins) join();
                            if (connection == 1) lie();
                          });
}

void Stranger::on_message(const net::Envelope& message) {
  if (const auto* joined = std::get_if<net::Joined>(&message.body)) {
    self_ = joined->worker;
    beat();
  }
  if (const auto* assign = std::get_if<net::Assign>(&message.body)) {
    const bool has_part = !plans::hosted_by(assign->plan, self_).empty();
    had_part_ = had_part_ || has_part;
    if (has_part && link_) link_->close();
  }
  if (std::holds_alternative<net::Quiesce>(message.body) && !options_.is_deaf) {
    send(net::Quiesced{make_inventory()});
  }
}

void Stranger::join() {
  plans::JoinRequest request;
  request.host_name = "elsewhere";
  request.process_id = 1;
  request.data_address = plane_.address();
  request.device = "host x1";
  if (options_.takes_number) request.previous = {1 + somebody().value};
  request.generation = around_.store.plans.empty() ? 0 : around_.store.plans.rbegin()->first;
  // One that nobody can have seen.
  if (rng_.below(8) == 0) request.generation += 2'000'000'000;
  if (rng_.below(2) == 0) {
    request.run = around_.run;
  } else if (options_.takes_number && rng_.below(2) == 0) {
    request.previous = somebody();  // Who may be waited for: a worker would know the run.
  }
  send(request);
}

void Stranger::beat() {
  if (!link_ || self_.value == 0) return;
  net::Heartbeat heartbeat;
  heartbeat.activity.steps_done = newest_step() + rng_.below(3);
  heartbeat.activity.works = rng_.below(2) == 0;
  heartbeat.activity.action = "0F0";
  heartbeat.activity.action_us = rng_.below(100'000'000);
  send(heartbeat);
  around_.world.after(kBeatUs, process_, [this, self = self_] {
    if (self == self_) beat();
  });
}

void Stranger::lie() {
  send(make_lie());
  if (around_.store.plans.empty()) return;
  const plans::Plan& plan = around_.store.plans.rbegin()->second;
  rng_.below(4) == 0 ? forge_state(plan) : forge(plan);
  around_.world.after(1'000 + rng_.below(kLieUsMax), process_, [this] { lie(); });
}

net::ControlBody Stranger::make_lie() {
  const plans::ReplicaId replica{static_cast<uint32_t>(rng_.below(kReplicas))};
  const auto stage = static_cast<int32_t>(rng_.below(kStages));
  const uint64_t step = newest_step() + rng_.below(3);
  switch (rng_.below(16)) {
    case 0:
    case 1: {
      plans::ReadyReport ready;
      ready.replica = replica;
      ready.step = step;
      ready.loss_sum = 3;
      ready.loss_tokens = 64;
      ready.norm_squared = 4;
      return ready;
    }
    case 2:
      return net::Reduced{replica, step, 4};
    case 3:
      return net::Validated{replica, step, 3, 64};
    case 4:
      return net::ShardSaved{stage, step + 1, {}, rng_.below(2) == 0 ? "no space" : ""};
    case 5:
      return net::SnapshotKept{stage, step + 1};
    case 6:
      // A second one with a part is believed.
      return net::Failed{kUnreadable, !had_part_};
    case 7:
      return net::Failed{"something broke", false};
    case 8:
    case 9:
      return net::PeerFailure{"it does not answer", somebody(), rng_.below(2) == 0};
    case 10:
      return net::CheckpointUnreadable{"its digest differs"};
    case 11:
      return net::Prepared{};
    case 12:
      return net::Averaged{replica, rng_.below(20), rng_.below(2) == 0};
    case 13:
      return net::EarlySignal{replica, step};
    case 14:
      return net::Quiesced{make_inventory()};
    default:
      return net::Stop{"the run is over"};
  }
}

void Stranger::forge(const plans::Plan& plan) {
  const plans::ReplicaId to{static_cast<uint32_t>(rng_.below(plans::replica_count(plan)))};
  const bool is_gradient = rng_.below(2) == 0;
  const std::vector<plans::Route> routes = plans::routes_from(plan, to, is_gradient ? +1 : -1);
  if (routes.empty()) return;
  const plans::Route& route = routes[rng_.below(routes.size())];
  net::DataPlane::Rows rows;
  rows.key.receiver = to.value;
  rows.key.kind =
      is_gradient ? net::schema::TensorKind::GRADIENT : net::schema::TensorKind::ACTIVATION;
  rows.key.microbatch = static_cast<uint32_t>(rng_.below(plan.microbatch_count));
  rows.sender = route.to.value;
  rows.row_begin = static_cast<uint32_t>(route.rows.begin);
  rows.row_count = static_cast<uint32_t>(route.rows.count);
  const int64_t row_floats = around_.job.training.seq_len * around_.job.model.channels;
  auto values = std::make_shared<std::vector<float>>(route.rows.count * row_floats, kForgedValue);
  rows.payload = *values;
  rows.owner = std::move(values);
  send_as(plans::replica_of(plan, route.to).worker, plans::replica_of(plan, to).worker, rows);
}

/// State of a layer, for any worker: those that no plan moves to it are not waited for.
void Stranger::forge_state(const plans::Plan& plan) {
  const auto layer = static_cast<int64_t>(rng_.below(plans::layer_count(around_.job.model)));
  net::DataPlane::Rows rows;
  rows.key.receiver = static_cast<uint32_t>(layer);
  rows.key.kind =
      rng_.below(2) == 0 ? net::schema::TensorKind::STATE : net::schema::TensorKind::SNAPSHOT;
  rows.row_count = 1;
  const int64_t floats = actors::layer_state_floats(around_.job.model, layer);
  auto values = std::make_shared<std::vector<float>>(floats, kForgedValue);
  actors::seal_layer_state(layer, *values);
  rows.payload = *values;
  rows.owner = std::move(values);
  const auto workers = plans::plan_workers(plan);
  for (plans::WorkerId receiver : workers) {
    const plans::WorkerId sender = rng_.below(2) == 0 ? plans::WorkerId{} : *workers.begin();
    send_as(sender, receiver, rows);
  }
}

void Stranger::send_as(plans::WorkerId sender, plans::WorkerId receiver,
                       net::DataPlane::Rows rows) {
  rows.key.generation = around_.store.plans.rbegin()->first;
  rows.key.step = newest_step() + rng_.below(2);
  plane_.identify({around_.run, sender, around_.store.term});
  plane_.renew_flows();
  for (const auto& [address, plane] : around_.planes.by_address) {
    if (plane != &plane_ && plane->self() == receiver) plane_.send(address, rows);
  }
}

/// All layers after the newest step, and after later ones that nobody has.
std::vector<plans::InventoryItem> Stranger::make_inventory() {
  if (options_.takes_number) return {};
  std::vector<plans::InventoryItem> inventory;
  const uint64_t newest = newest_step();
  const uint64_t generation =
      around_.store.commits.empty() ? 0 : around_.store.commits.rbegin()->second.generation;
  for (uint64_t step : {newest, newest + 1, newest + 2}) {
    inventory.push_back({step, {0, plans::layer_count(around_.job.model)}, generation});
  }
  return inventory;
}

/// Steps done.
uint64_t Stranger::newest_step() const {
  return around_.store.commits.empty() ? 0 : around_.store.commits.rbegin()->first + 1;
}

void Stranger::send(const net::ControlBody& body) {
  if (!link_) return;
  net::EnvelopeHead head;
  if (!around_.store.plans.empty()) head.generation = around_.store.plans.rbegin()->first;
  // The round that comes next has the next number.
  if (std::holds_alternative<net::Quiesced>(body)) head.generation += rng_.below(2);
  head.term = around_.store.term;
  head.sender = rng_.below(2) == 0 ? self_.value : somebody().value;
  link_->send(net::encode(head, body));
}

void Stranger::kill() {
  if (!around_.world.is_alive(process_)) return;
  around_.world.kill(process_);
  around_.network.on_killed(process_, /*silent=*/false);
  plane_.on_killed(/*silent=*/false);
  link_ = nullptr;
}

}  // namespace skein::sim
