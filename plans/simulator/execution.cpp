#include "plans/simulator/execution.hpp"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "plans/base/check.hpp"

namespace skein::plans {
namespace {

bool ends_backward(ActionType type) {
  return type == ActionType::kBackward || type == ActionType::kBackwardWeight;
}

/// 0: the output goes to the stage behind, 1: to the one in front.
size_t direction_of(const Action& action) { return action.type == ActionType::kForward ? 0 : 1; }

/// Positions of the last B or W of each stage.
std::vector<size_t> last_backwards(const ActionList& actions, size_t stage_count) {
  std::vector<size_t> last(stage_count, actions.size());
  for (size_t i = 0; i < actions.size(); ++i) {
    if (ends_backward(actions[i].type)) last[static_cast<size_t>(actions[i].stage)] = i;
  }
  std::erase(last, actions.size());
  std::sort(last.begin(), last.end());
  return last;
}

}  // namespace

bool Execution::Event::operator>(const Event& other) const {
  return std::tie(time_us, kind, index) > std::tie(other.time_us, other.kind, other.index);
}

Execution::Execution(const Plan& plan, const Profile& profile, const ClusterSpec& cluster,
                     const SimulationOptions& options, const Ground& ground,
                     const SharingSpec& sharing)
    : plan_(plan),
      options_(options),
      device_count_(static_cast<int32_t>(cluster.devices.size())),
      table_(make_work_table(plan, profile, cluster)),
      ground_(ground),
      turns_(sharing.weight),
      takes_turns_(sharing.takes_turns),
      rings_(plan, profile, cluster, options.bucketed_reduction),
      workers_(table_.workers.size()),
      groups_(plan.groups.size()) {
  streams_.resize(static_cast<size_t>(table_.stream_count));
  result_.workers.resize(workers_.size());
  for (size_t w = 0; w < workers_.size(); ++w) {
    result_.workers[w].id = table_.workers[w].id;
    workers_[w].last_backward =
        last_backwards(list_of(static_cast<int32_t>(w)), plan.stages.size());
  }
  const auto M = static_cast<size_t>(plan.microbatch_count);
  for (size_t direction : {0, 1}) {
    for (const SimulatedReplica& replica : table_.replicas) {
      inputs_[direction].insert(inputs_[direction].end(), M,
                                Input{replica.input_count[direction], 0});
    }
  }
}

void Execution::begin() {
  groups_left_ = groups_.size();
  name_turns(0);
  for (int32_t w = 0; w < static_cast<int32_t>(workers_.size()); ++w) {
    change_memory(w, table_.workers[static_cast<size_t>(w)].resident_bytes, 0);
    start_next(w, 0);
  }
}

double Execution::next_event_us() const {
  return events_.empty() ? std::numeric_limits<double>::infinity() : events_.top().time_us;
}

void Execution::handle_events(double now_us) {
  while (next_event_us() <= now_us) {
    const Event event = events_.top();
    events_.pop();
    handle(event);
  }
}

void run_executions(std::span<Execution* const> executions, FairLinks& links,
                    SharedDevices* devices, const std::function<bool()>& is_over) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const auto count = static_cast<int32_t>(executions.size());
  for (Execution* each : executions) each->begin();
  const auto next_event_us = [&] {
    double next = kNever;
    for (const Execution* each : executions) next = std::min(next, each->next_event_us());
    return next;
  };
  while (!is_over()) {
    const double wake_us = devices != nullptr ? devices->wake_us() : kNever;
    const double now_us = std::min({next_event_us(), links.next_end_us(), wake_us});
    if (now_us == kNever) return;
    while (links.next_end_us() <= now_us) {
      const int32_t tag = links.end_next();
      executions[static_cast<size_t>(tag % count)]->on_flow_end(tag, now_us);
    }
    // What one of them does may be an event of another one at once.
    while (next_event_us() <= now_us) {
      for (Execution* each : executions) each->handle_events(now_us);
    }
    if (devices != nullptr) devices->wake(now_us);
    links.settle(now_us);
  }
}

void Execution::push(double time_us, EventKind kind, int32_t index) {
  events_.push({time_us, kind, index});
}

void Execution::handle(const Event& event) {
  switch (event.kind) {
    case EventKind::kWorkDone:
      return on_work_done(event.index, event.time_us);
    case EventKind::kArrival:
      return on_arrival(event.index, event.time_us);
    case EventKind::kShareStart:
      return start_share(event.index, event.time_us);
    case EventKind::kCommit:
      return on_commit(event.time_us);
  }
}

const ActionList& Execution::list_of(int32_t worker) const {
  const int32_t rank = table_.workers[static_cast<size_t>(worker)].rank;
  return plan_.actions[static_cast<size_t>(rank)];
}

// Work.

bool Execution::takes_input(int32_t replica, const Action& action) const {
  return action.type != ActionType::kBackwardWeight &&
         table_.replicas[static_cast<size_t>(replica)].input_count[direction_of(action)] > 0;
}

Execution::Input& Execution::input(int32_t replica, const Action& action) {
  const size_t at = static_cast<size_t>(replica) * static_cast<size_t>(plan_.microbatch_count) +
                    static_cast<size_t>(action.microbatch);
  return inputs_[direction_of(action)][at];
}

/// Asks for the device for the next action of a worker, if it is free and the input is there.
void Execution::start_next(int32_t w, double now_us) {
  WorkerState& worker = workers_[static_cast<size_t>(w)];
  const ActionList& actions = list_of(w);
  if (worker.is_busy || worker.next == actions.size() || worker.step == options_.steps) return;
  const Action& action = actions[worker.next];
  const int32_t r =
      table_.replica_of(action.stage, table_.workers[static_cast<size_t>(w)].position);
  double start_us = worker.free_us + (worker.has_worked ? options_.action_overhead_us : 0);
  const SimulatedReplica& replica = table_.replicas[static_cast<size_t>(r)];
  if (takes_input(r, action)) {
    Input& arrived = input(r, action);
    if (arrived.missing > 0) return;
    start_us = std::max(start_us, arrived.last_us + options_.action_overhead_us);
    arrived.missing = replica.input_count[direction_of(action)];  // The next step needs as many.
  }
  worker.is_updating = false;
  const bool ends_pass = worker.next + 1 == actions.size();
  ask(w, {PieceNeed::kTurn, ends_pass, static_cast<int32_t>(worker.next)}, start_us,
      replica.work_us[static_cast<size_t>(action.type)], now_us);
}

void Execution::ask(int32_t w, const DevicePieceNeed& need, double from_us, double work_us,
                    double now_us) {
  WorkerState& worker = workers_[static_cast<size_t>(w)];
  worker.is_busy = true;
  worker.from_us = from_us;
  worker.work_us = work_us;
  if (ground_.devices == nullptr) return begin_work(w, now_us);
  const int32_t device = table_.workers[static_cast<size_t>(w)].device;
  ground_.devices->request(ground_.number, device, need, now_us);
}

void Execution::on_granted(int32_t device, double now_us) {
  for (int32_t w = 0; w < static_cast<int32_t>(workers_.size()); ++w) {
    if (table_.workers[static_cast<size_t>(w)].device == device) return begin_work(w, now_us);
  }
}

/// Does what the worker has asked for.
void Execution::begin_work(int32_t w, double now_us) {
  WorkerState& worker = workers_[static_cast<size_t>(w)];
  const double start_us = std::max(worker.from_us, now_us);
  if (worker.is_updating) return start_work(w, start_us);
  const Action& action = list_of(w)[worker.next];
  const int32_t r =
      table_.replica_of(action.stage, table_.workers[static_cast<size_t>(w)].position);
  const SimulatedReplica& replica = table_.replicas[static_cast<size_t>(r)];
  if (action.type == ActionType::kForward) change_memory(w, replica.stash_bytes, start_us);
  start_work(w, start_us);
  if (std::binary_search(worker.last_backward.begin(), worker.last_backward.end(), worker.next)) {
    share_starts_.clear();
    rings_.on_last_backward(ReplicaId{static_cast<uint32_t>(r)}, action.type, start_us,
                            worker.free_us, share_starts_);
    for (const auto& start : share_starts_) {
      push(start.at_us, EventKind::kShareStart, start.group);
    }
  }
}

void Execution::start_work(int32_t w, double start_us) {
  WorkerState& worker = workers_[static_cast<size_t>(w)];
  const bool is_update = worker.is_updating;
  WorkPiece piece;
  piece.device = table_.workers[static_cast<size_t>(w)].device;
  piece.step = worker.step;
  piece.index = is_update ? -1 : static_cast<int32_t>(worker.next);
  piece.work_us = worker.work_us;
  worker.free_us = end_of_work(options_.scenario, piece, device_count_, start_us);
  worker.has_worked = true;
  SimulatedWorker& record = result_.workers[static_cast<size_t>(w)];
  record.busy_us += worker.free_us - start_us;
  if (options_.keeps_records) {
    const Action action = is_update ? Action{} : list_of(w)[worker.next];
    record.slots.push_back({worker.step, is_update, action, start_us, worker.free_us});
  }
  push(worker.free_us, EventKind::kWorkDone, w);
}

void Execution::on_work_done(int32_t w, double now_us) {
  WorkerState& worker = workers_[static_cast<size_t>(w)];
  worker.is_busy = false;
  if (worker.is_updating) {
    on_update_done(w, now_us);
  } else {
    on_action_done(w, list_of(w)[worker.next++], now_us);
  }
  start_next(w, now_us);
  if (ground_.devices == nullptr) return;
  const int32_t device = table_.workers[static_cast<size_t>(w)].device;
  ground_.devices->end(ground_.number, device, now_us);
}

/// Before a pass, where devices are shared: as the workers' reports and the coordinator's orders.
void Execution::name_turns(double now_us) {
  if (ground_.devices == nullptr || !takes_turns_) return;
  for (const SimulatedRole& worker : table_.workers) {
    turns_.on_report(ground_.devices->report(ground_.number, worker.device));
  }
  const uint64_t position = turns_.name_next();
  for (const SimulatedRole& worker : table_.workers) {
    if (position == 0) break;
    ground_.devices->enter(ground_.number, worker.device, position, now_us);
  }
}

void Execution::on_action_done(int32_t w, const Action& action, double now_us) {
  const int32_t r =
      table_.replica_of(action.stage, table_.workers[static_cast<size_t>(w)].position);
  const SimulatedReplica& replica = table_.replicas[static_cast<size_t>(r)];
  if (ends_backward(action.type)) change_memory(w, -replica.stash_bytes, now_us);
  if (action.type == ActionType::kBackwardWeight) return;
  for (const SimulatedRoute& route : replica.routes[direction_of(action)]) {
    send(r, action, route, now_us);
  }
}

void Execution::on_update_done(int32_t w, double now_us) {
  WorkerState& worker = workers_[static_cast<size_t>(w)];
  worker.is_updating = false;
  worker.next = 0;
  ++worker.step;
  if (--updates_left_ == 0) result_.step_end_us.push_back(now_us);
}

void Execution::change_memory(int32_t w, int64_t delta_bytes, double now_us) {
  WorkerState& worker = workers_[static_cast<size_t>(w)];
  SimulatedWorker& record = result_.workers[static_cast<size_t>(w)];
  worker.bytes += delta_bytes;
  record.peak_bytes = std::max(record.peak_bytes, worker.bytes);
  if (!options_.keeps_records) return;
  if (!record.memory.empty() && record.memory.back().time_us == now_us) {
    record.memory.back().bytes = worker.bytes;
  } else {
    record.memory.push_back({now_us, worker.bytes});
  }
}

// Bytes on their way.

void Execution::send(int32_t r, const Action& action, const SimulatedRoute& route, double now_us) {
  if (route.is_local) return deliver(route.to, action, now_us);
  const int32_t from = table_.replicas[static_cast<size_t>(r)].worker;
  const int32_t to = table_.replicas[static_cast<size_t>(route.to)].worker;
  Delivery delivery;
  delivery.route = &route;
  delivery.latency_us = route.path.latency_us;
  delivery.transfer = {workers_[static_cast<size_t>(from)].step,
                       action,
                       table_.workers[static_cast<size_t>(from)].id,
                       table_.workers[static_cast<size_t>(to)].id,
                       route.bytes,
                       now_us,
                       now_us};
  const int32_t id = keep(std::move(delivery));
  Stream& stream = streams_[static_cast<size_t>(route.stream)];
  if (stream.is_busy) {
    stream.waiting.push_back(id);
  } else {
    start_stream(id, now_us);
  }
}

int32_t Execution::keep(Delivery delivery) {
  if (unused_deliveries_.empty()) {
    unused_deliveries_.push_back(static_cast<int32_t>(deliveries_.size()));
    deliveries_.emplace_back();
  }
  const int32_t id = unused_deliveries_.back();
  unused_deliveries_.pop_back();
  deliveries_[static_cast<size_t>(id)] = std::move(delivery);
  return id;
}

void Execution::start_flow(int32_t id, const LinkSet& links, double bytes, double now_us) {
  if (bytes > 0) {
    ground_.links.start(links, bytes, id * ground_.count + ground_.number, now_us);
  } else {
    push(now_us + deliveries_[static_cast<size_t>(id)].latency_us, EventKind::kArrival, id);
  }
}

/// The rows are the first ones of their connection now.
void Execution::start_stream(int32_t id, double now_us) {
  const SimulatedRoute& route = *deliveries_[static_cast<size_t>(id)].route;
  streams_[static_cast<size_t>(route.stream)].is_busy = route.bytes > 0;
  start_flow(id, route.path.links, static_cast<double>(route.bytes), now_us);
}

void Execution::on_flow_end(int32_t of_tag, double now_us) {
  const int32_t id = of_tag / ground_.count;
  const Delivery& delivery = deliveries_[static_cast<size_t>(id)];
  push(now_us + delivery.latency_us, EventKind::kArrival, id);
  if (delivery.route == nullptr) return;
  Stream& stream = streams_[static_cast<size_t>(delivery.route->stream)];
  stream.is_busy = false;
  if (stream.waiting.empty()) return;
  const int32_t next = stream.waiting.front();
  stream.waiting.pop_front();
  start_stream(next, now_us);
}

void Execution::on_arrival(int32_t id, double now_us) {
  Delivery& delivery = deliveries_[static_cast<size_t>(id)];
  unused_deliveries_.push_back(id);
  if (delivery.group >= 0) return on_edge_done(delivery.group, now_us);
  if (options_.keeps_records) {
    delivery.transfer.end_us = now_us;
    result_.transfers.push_back(delivery.transfer);
  }
  deliver(delivery.route->to, delivery.transfer.producer, now_us);
}

void Execution::deliver(int32_t replica, const Action& producer, double now_us) {
  Input& arrived = input(replica, producer);
  SKEIN_CHECK(arrived.missing > 0) << "an input came twice: " << to_text(producer);
  arrived.last_us = now_us;
  if (--arrived.missing > 0) return;
  start_next(table_.replicas[static_cast<size_t>(replica)].worker, now_us);
}

// Reductions and updates.

void Execution::start_share(int32_t group, double now_us) {
  GroupState& state = groups_[static_cast<size_t>(group)];
  if (!std::exchange(state.has_begun, true)) state.start_us = now_us;
  const double bytes = rings_.edge_bytes(group);
  const std::vector<GradientRings::Edge>& edges = rings_.edges(group);
  state.edges_left = static_cast<int32_t>(edges.size());
  if (edges.empty()) return on_reduced(group, now_us);
  for (const GradientRings::Edge& edge : edges) {
    Delivery delivery;
    delivery.group = group;
    delivery.latency_us = edge.path.latency_us;
    start_flow(keep(std::move(delivery)), edge.path.links, edge.is_local ? 0 : bytes, now_us);
  }
}

void Execution::on_edge_done(int32_t group, double now_us) {
  if (--groups_[static_cast<size_t>(group)].edges_left == 0) on_reduced(group, now_us);
}

/// The current share of a group has been reduced.
void Execution::on_reduced(int32_t group, double now_us) {
  if (const auto next_us = rings_.on_share_reduced(group, now_us)) {
    return push(*next_us, EventKind::kShareStart, group);
  }
  GroupState& state = groups_[static_cast<size_t>(group)];
  if (options_.keeps_records && !rings_.edges(group).empty()) {
    const auto step = static_cast<int32_t>(result_.step_end_us.size());
    result_.reductions.push_back(
        {step, GroupId{static_cast<uint32_t>(group)}, state.start_us, now_us});
  }
  state = {};
  if (--groups_left_ == 0) push(now_us + options_.commit_us, EventKind::kCommit, 0);
}

void Execution::on_commit(double now_us) {
  rings_.begin_step();
  name_turns(now_us);
  groups_left_ = groups_.size();
  updates_left_ = workers_.size();
  for (int32_t w = 0; w < static_cast<int32_t>(workers_.size()); ++w) {
    const double free_us = workers_[static_cast<size_t>(w)].free_us + options_.action_overhead_us;
    workers_[static_cast<size_t>(w)].is_updating = true;
    ask(w, {PieceNeed::kAside}, std::max(now_us, free_us),
        table_.workers[static_cast<size_t>(w)].update_us, now_us);
  }
}

Simulation Execution::take_result() {
  SKEIN_CHECK(has_ended()) << result_.step_end_us.size() << " of " << options_.steps
                           << " steps ended";
  const double end_us = result_.step_end_us.back();
  result_.step_us = end_us / options_.steps;
  double busy_us = 0;
  for (const SimulatedWorker& worker : result_.workers) busy_us += worker.busy_us;
  const double whole_us = end_us * static_cast<double>(workers_.size());
  result_.bubble = whole_us > 0 ? 1 - busy_us / whole_us : 0;
  return std::move(result_);
}

}  // namespace skein::plans
