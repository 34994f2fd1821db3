#include "actors/replica/link_transfers.hpp"

#include <utility>
#include <vector>

#include "plans/base/check.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::actors {
namespace {

using Kind = net::schema::TensorKind;

int32_t front_of(int32_t from_stage, Kind kind) {
  return kind == Kind::ACTIVATION ? from_stage : from_stage - 1;
}

}  // namespace

LinkTransfers::LinkTransfers(Options options, const StageReplicas& replicas,
                             DeviceOperations& operations)
    : options_(std::move(options)), replicas_(replicas), operations_(operations) {}

bool LinkTransfers::carries(int32_t from_stage, Kind kind) const {
  if (kind != Kind::ACTIVATION && kind != Kind::GRADIENT) return false;
  return options_.linked.contains(front_of(from_stage, kind));
}

gpu::NumberType LinkTransfers::type_of(int32_t from_stage, Kind kind) const {
  if (!carries(from_stage, kind)) return gpu::NumberType::kFloat32;
  return options_.memory.at(front_of(from_stage, kind))->tensors().type;
}

absl::StatusOr<net::TensorHandle> LinkTransfers::make_output(const StageReplica& from,
                                                             const plans::Action& by) {
  const int32_t front = by.type == plans::ActionType::kForward ? from.stage : from.stage - 1;
  SKEIN_ASSIGN_OR_RETURN(net::TensorHandle tensor, options_.memory.at(front)->take());
  outputs_[{from.stage, by.type, by.microbatch}] = tensor;
  return tensor;
}

void LinkTransfers::expect(uint64_t step) {
  for (const auto& [stage, replica] : replicas_) expect(replica, step);
}

/// Both directions over the links of a replica.
void LinkTransfers::expect(const StageReplica& replica, uint64_t step) {
  for (int direction : {+1, -1}) {
    const int32_t front = direction > 0 ? replica.stage : replica.stage - 1;
    if (!options_.linked.contains(front)) continue;
    const auto& routes = direction > 0 ? replica.routes_forward : replica.routes_backward;
    const Kind out = direction > 0 ? Kind::ACTIVATION : Kind::GRADIENT;
    const Kind in = direction > 0 ? Kind::GRADIENT : Kind::ACTIVATION;
    for (const plans::Route& route : routes) {
      for (int32_t m = 0; m < options_.plan.microbatch_count; ++m) {
        expect(replica, front, out, {route.from, route.to, m}, route, step);
        expect(replica, front, in, {route.to, route.from, m}, route, step);
      }
    }
  }
}

void LinkTransfers::expect(const StageReplica& replica, int32_t front, Kind kind,
                           const plans::TransferId& id, const plans::Route& route, uint64_t step) {
  const plans::CollectiveKey key{step, operations_.places().transfers.at(id), 0};
  Transfer transfer;
  transfer.id = id;
  transfer.front = front;
  transfer.stage = replica.stage;
  transfer.is_sent = id.from == replica.parts.id;
  transfer.key = {options_.plan.generation, id.to.value, kind, step,
                  static_cast<uint32_t>(id.microbatch)};
  transfer.peer = plans::replica_of(options_.plan, route.to).worker;
  transfer.number_begin = (route.rows.begin - replica.rows.begin) * options_.row_numbers;
  transfer.number_count = route.rows.count * options_.row_numbers;
  transfers_[key] = std::move(transfer);
  operations_.expect(key);
}

void LinkTransfers::await_inputs(uint64_t step) {
  std::vector<plans::CollectiveKey> keys;
  for (const auto& [key, transfer] : transfers_) {
    if (key.step == step && !transfer.is_sent) keys.push_back(key);
  }
  for (const plans::CollectiveKey& key : keys) operations_.on_ready(key);
}

void LinkTransfers::pass_on(const plans::RunAction& run) {
  if (!run.is_last_part()) return;
  auto made = outputs_.extract({run.action.stage, run.action.type, run.action.microbatch});
  if (made.empty()) return;
  const bool is_forward = run.action.type == plans::ActionType::kForward;
  const StageReplica& replica = replicas_.at(run.action.stage);
  for (const plans::Route& route : is_forward ? replica.routes_forward : replica.routes_backward) {
    const plans::TransferId id{route.from, route.to, run.action.microbatch};
    const plans::CollectiveKey key{run.step, operations_.places().transfers.at(id), 0};
    transfers_.at(key).tensor = made.mapped();
    operations_.on_ready(key);
  }
}

bool LinkTransfers::begin(const plans::CollectiveKey& key) {
  const auto found = transfers_.find(key);
  if (found == transfers_.end()) return false;
  Transfer& begun = found->second;
  gpu::DevicePool& memory = *options_.memory.at(begun.front);
  if (!begun.is_sent) {
    Arriving& whole = arriving_[input_key(begun)];
    if (whole.tensor == nullptr) {
      absl::StatusOr<net::TensorHandle> taken = memory.take();
      if (!taken.ok()) {
        options_.fail(taken.status());
        return true;
      }
      whole.tensor = *std::move(taken);
      whole.numbers_left = memory.tensors().numbers;
    }
    begun.tensor = whole.tensor;
  }
  begun.start_us = options_.now_us();
  running_.insert(key);
  const gpu::Numbers values = memory.numbers_in(begun.tensor) + begun.number_begin;
  options_.transfer(begun.front,
                    TransferRequest{key, values, begun.number_count, begun.peer, begun.is_sent});
  return true;
}

LinkTransfers::Ended LinkTransfers::finish(const plans::CollectiveKey& key) {
  auto node = transfers_.extract(key);
  SKEIN_CHECK(!node.empty()) << "a transfer ends that did not begin";
  Ended ended;
  ended.transfer = std::move(node.mapped());
  operations_.on_end(key);
  if (ended.transfer.is_sent) return ended;
  const auto whole = arriving_.find(input_key(ended.transfer));
  SKEIN_CHECK(whole != arriving_.end()) << "rows have come of a tensor that is complete";
  whole->second.numbers_left -= ended.transfer.number_count;
  if (whole->second.numbers_left > 0) return ended;
  ended.input = std::move(whole->second.tensor);
  arriving_.erase(whole);
  return ended;
}

void LinkTransfers::clear() {
  outputs_.clear();
  transfers_.clear();
  arriving_.clear();
  options_.memory.clear();
}

/// What the receiver's program calls the tensor.
plans::InputKey LinkTransfers::input_key(const Transfer& transfer) {
  const bool is_activation = transfer.key.kind == Kind::ACTIVATION;
  return {is_activation ? plans::InputKind::kActivation : plans::InputKind::kGradient,
          transfer.key.step, transfer.stage, transfer.id.microbatch};
}

}  // namespace skein::actors
