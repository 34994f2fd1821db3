// What a rank's replicas send to and receive from neighbouring stages without the hosts.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/replica/rank.hpp"
#include "plans/base/check.hpp"

namespace skein::actors {
namespace {

using Kind = net::schema::TensorKind;

/// Tensors of one kind for a stage and step, by what the receiver's program calls them.
plans::InputKey input_key(const DeviceTransfer& transfer, int32_t stage) {
  const bool is_activation = transfer.key.kind == Kind::ACTIVATION;
  return {is_activation ? plans::InputKind::kActivation : plans::InputKind::kGradient,
          transfer.key.step, stage, transfer.id.microbatch};
}

}  // namespace

/// The link over which a stage passes on tensors of this kind; null: they go by way of the hosts.
const StageLinkIo* RankState::link_of(int32_t from_stage, Kind kind) const {
  if (kind != Kind::ACTIVATION && kind != Kind::GRADIENT) return nullptr;
  const auto found = config.links.find(kind == Kind::ACTIVATION ? from_stage : from_stage - 1);
  return found == config.links.end() ? nullptr : &found->second;
}

bool RankState::is_linked(int32_t stage) const {
  return config.links.contains(stage) || config.links.contains(stage - 1);
}

/// Of both directions over the links of a replica, in a step.
void RankState::expect_transfers(const HeldReplica& replica, uint64_t step) {
  for (int direction : {+1, -1}) {
    const int32_t front = direction > 0 ? replica.stage : replica.stage - 1;
    if (!config.links.contains(front)) continue;
    const auto& routes = direction > 0 ? replica.routes_forward : replica.routes_backward;
    for (const plans::Route& route : routes) {
      for (int32_t m = 0; m < config.plan.microbatch_count; ++m) {
        const Kind out = direction > 0 ? Kind::ACTIVATION : Kind::GRADIENT;
        const Kind in = direction > 0 ? Kind::GRADIENT : Kind::ACTIVATION;
        expect(replica, front, out, {route.from, route.to, m}, route, step);
        expect(replica, front, in, {route.to, route.from, m}, route, step);
      }
    }
  }
}

void RankState::expect(const HeldReplica& replica, int32_t front, Kind kind,
                       const plans::TransferId& id, const plans::Route& route, uint64_t step) {
  const plans::CollectiveKey key{step, places.transfers.at(id), 0};
  DeviceTransfer transfer;
  transfer.id = id;
  transfer.front = front;
  transfer.stage = replica.stage;
  transfer.is_sent = id.from == replica.parts.id;
  transfer.key = {config.plan.generation, id.to.value, kind, step,
                  static_cast<uint32_t>(id.microbatch)};
  transfer.peer = plans::replica_of(config.plan, route.to).worker;
  transfer.float_begin = (route.rows.begin - replica.rows.begin) * row_floats;
  transfer.float_count = route.rows.count * row_floats;
  transfers[key] = std::move(transfer);
  order.expect(key);
}

/// There is memory for whatever comes: to wait for some would be to wait for a later operation.
void RankState::await_inputs(uint64_t step) {
  std::vector<plans::CollectiveKey> keys;
  for (const auto& [key, transfer] : transfers) {
    if (key.step == step && !transfer.is_sent) keys.push_back(key);
  }
  for (const plans::CollectiveKey& key : keys) begin_operation(order.on_ready(key));
}

/// An action's output is there.
void RankState::pass_on(const plans::RunAction& run) {
  const auto made = outputs.find({run.action.stage, run.action.type, run.action.microbatch});
  if (made == outputs.end() || !run.is_last_part()) return;
  const net::TensorHandle tensor = std::move(made->second);
  outputs.erase(made);
  const bool is_forward = run.action.type == plans::ActionType::kForward;
  const HeldReplica& replica = held.at(run.action.stage);
  for (const plans::Route& route : is_forward ? replica.routes_forward : replica.routes_backward) {
    const plans::TransferId id{route.from, route.to, run.action.microbatch};
    const plans::CollectiveKey key{run.step, places.transfers.at(id), 0};
    transfers.at(key).tensor = tensor;
    begin_operation(order.on_ready(key));
  }
}

void RankState::transfer(const plans::CollectiveKey& key) {
  DeviceTransfer& begun = transfers.at(key);
  if (!begun.is_sent) {
    Arriving& whole = arriving[input_key(begun, begun.stage)];
    if (whole.tensor == nullptr) {
      absl::StatusOr<net::TensorHandle> taken = held.at(begun.stage).device_tensors->take();
      if (!taken.ok()) return fail(with_estimates(taken.status()));
      whole.tensor = *std::move(taken);
      whole.floats_left = static_cast<int64_t>(whole.tensor->size());
    }
    begun.tensor = whole.tensor;
  }
  begun.start_us = now_us();
  ++reductions;
  const std::span<float> values = begun.tensor->subspan(static_cast<size_t>(begun.float_begin),
                                                        static_cast<size_t>(begun.float_count));
  self->send(config.links.at(begun.front), TransferRequest{key, values, begun.peer, begun.is_sent},
             TransferListener(self));
}

void RankState::on_transfer_done(const TransferDone& done) {
  --reductions;
  if (retires) return try_retire();
  if (!done.status.ok()) return fail(done.status);
  auto node = transfers.extract(done.key);
  SKEIN_CHECK(!node.empty()) << "a transfer ends that did not begin";
  DeviceTransfer ended = std::move(node.mapped());
  begin_operation(order.on_end(done.key));
  if (ended.is_sent) {
    const char* kind = ended.key.kind == Kind::ACTIVATION ? "SEND_F" : "SEND_B";
    return record(ended.stage, absl::StrCat(ended.stage, kind, ended.id.microbatch), 1,
                  ended.start_us, now_us(), ended.id.microbatch);
  }
  const auto whole = arriving.find(input_key(ended, ended.stage));
  whole->second.floats_left -= ended.float_count;
  if (whole->second.floats_left > 0) return;
  const net::TensorHandle tensor = std::move(whole->second.tensor);
  arriving.erase(whole);
  on_input({ended.key, tensor});
}

}  // namespace skein::actors
