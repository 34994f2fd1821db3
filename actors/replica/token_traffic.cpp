#include "actors/replica/token_traffic.hpp"

#include <span>
#include <utility>

#include "actors/replica/tensor_traffic.hpp"
#include "plans/base/check.hpp"

namespace skein::actors {
namespace {

using Kind = net::schema::TensorKind;

}  // namespace

TokenTraffic::TokenTraffic(Options options, const StageReplicas& replicas)
    : options_(std::move(options)) {
  for (const auto& [stage, replica] : replicas) {
    staging_[stage] =
        gpu::StagingPool::create(options_.device, replica.rows.count * options_.row_floats);
    // Others may be a step ahead.
    const auto tokens = static_cast<uint32_t>(
        2 * plans::passes_of(options_.plan, plans::replica_of(options_.plan, replica.parts.id)));
    const bool leads = plans::stage_at(options_.plan, stage).first == replica.parts.id;
    if (stage > 0) {
      const int64_t part = rows_of_stage(stage - 1);
      open(replica, plans::InputKind::kActivation, part, tokens);
      if (leads) open(replica, plans::InputKind::kValidation, part, kValidationTensorsMax);
    }
    if (stage + 1 < options_.plan.stage_count) {
      open(replica, plans::InputKind::kGradient, replica.rows.count, tokens);
    }
  }
}

int64_t TokenTraffic::rows_of_stage(int32_t stage) const {
  return plans::stage_at(options_.plan, stage).replicas.front().rows.count;
}

const std::string& TokenTraffic::address_of(plans::ReplicaId replica) const {
  return options_.addresses.at(plans::replica_of(options_.plan, replica).worker);
}

void TokenTraffic::open(const StageReplica& replica, plans::InputKind kind, int64_t part_rows,
                        uint32_t tensors_max) {
  net::TensorInbox::StreamSpec stream;
  stream.generation = options_.plan.generation;
  stream.receiver = replica.parts.id.value;
  stream.kind = to_schema(kind);
  stream.row_count = static_cast<uint32_t>(replica.rows.count);
  stream.row_floats = static_cast<uint32_t>(options_.row_floats);
  for (int64_t row = 0; row < replica.rows.count; row += part_rows) {
    stream.parts.emplace_back(static_cast<uint32_t>(row), static_cast<uint32_t>(part_rows));
  }
  stream.tensors_max = tensors_max;
  stream.on_tensor = options_.on_tensor;
  options_.plane->inbox().open(std::move(stream));
}

/// Rows [first, first + count) of an output, where they belong at the receiver's.
net::DataPlane::Rows TokenTraffic::rows_of(const StageReplica& from,
                                           const net::TensorHandle& memory,
                                           const net::TensorKey& key, int64_t first,
                                           int64_t count) const {
  net::DataPlane::Rows rows;
  rows.key = key;
  rows.sender = from.parts.id.value;
  rows.row_count = static_cast<uint32_t>(count);
  rows.payload =
      std::span<const float>(*memory).subspan(static_cast<size_t>(first * options_.row_floats),
                                              static_cast<size_t>(count * options_.row_floats));
  rows.owner = memory;
  return rows;
}

net::DataPlane::Rows TokenTraffic::rows_to(plans::ReplicaId to, const StageReplica& from,
                                           const net::TensorHandle& memory, Kind kind,
                                           uint64_t step, int32_t number) const {
  const int64_t count = from.rows.count;
  const int64_t inputs = rows_of_stage(from.stage + 1) / count;
  const net::TensorKey key{options_.plan.generation, to.value, kind, step,
                           static_cast<uint32_t>(number / inputs)};
  net::DataPlane::Rows rows = rows_of(from, memory, key, 0, count);
  rows.row_begin = static_cast<uint32_t>(number % inputs * count);
  return rows;
}

net::TensorHandle TokenTraffic::make_activation(const StageReplica& from, uint64_t step,
                                                int32_t token) {
  if (from.stage + 1 == options_.plan.stage_count) return nullptr;
  net::TensorHandle memory = staging_.at(from.stage)->take();
  activations_[{step, from.stage, token}] = memory;
  return memory;
}

Outgoing TokenTraffic::activation(const StageReplica& from, const plans::SendOutput& output) {
  auto node = activations_.extract(Key{output.step, from.stage, output.token});
  SKEIN_CHECK(!node.empty()) << "an output is sent twice, or was never made";
  Outgoing out;
  out.memory = node.mapped();
  out.plane = options_.plane;
  out.parts.emplace_back(
      address_of(output.to),
      rows_to(output.to, from, out.memory, Kind::ACTIVATION, output.step, output.token));
  return out;
}

void TokenTraffic::forget(uint64_t step) {
  activations_.erase(activations_.begin(), activations_.lower_bound(Key{step, 0, 0}));
}

Outgoing TokenTraffic::gradient(const StageReplica& from, uint64_t step, int32_t token,
                                const std::vector<plans::ReplicaId>& holders) {
  Outgoing out;
  if (from.stage == 0) return out;
  out.memory = staging_.at(from.stage)->take();
  out.plane = options_.plane;
  const auto count = static_cast<int64_t>(holders.size());
  const int64_t rows = from.rows.count / count;
  for (int64_t i = 0; i < count; ++i) {
    const plans::ReplicaId to = holders[static_cast<size_t>(i)];
    const net::TensorKey key{options_.plan.generation, to.value, Kind::GRADIENT, step,
                             static_cast<uint32_t>(token * count + i)};
    out.parts.emplace_back(address_of(to), rows_of(from, out.memory, key, i * rows, rows));
  }
  return out;
}

Outgoing TokenTraffic::validation(const StageReplica& from, uint64_t step, int32_t piece) {
  Outgoing out;
  if (from.stage + 1 == options_.plan.stage_count) return out;
  out.memory = staging_.at(from.stage)->take();
  out.plane = options_.plane;
  const plans::ReplicaId to = plans::stage_at(options_.plan, from.stage + 1).first;
  out.parts.emplace_back(address_of(to),
                         rows_to(to, from, out.memory, Kind::VALIDATION, step, piece));
  return out;
}

}  // namespace skein::actors
