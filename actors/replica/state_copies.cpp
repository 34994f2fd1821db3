#include "actors/replica/state_copies.hpp"

#include <utility>

#include <caf/send.hpp>

#include "actors/replica/tensor_traffic.hpp"
#include "actors/worker/layer_state.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::actors {

StateCopies::StateCopies(Options options, const StageReplicas& replicas)
    : options_(std::move(options)) {
  for (const auto& [stage, replica] : replicas) {
    const plans::LayerRange& layers = replica.parts.options.layers;
    for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
      memory_[layer] =
          gpu::StagingPool::create(options_.device, layer_state_floats(options_.model, layer));
    }
  }
}

gpu::Work StateCopies::save(const StageReplica& replica, uint64_t steps_done) const {
  auto copy = std::make_shared<ShardRequest>();
  copy->steps_done = steps_done;
  copy->stage = replica.stage;
  copy->layers = replica.parts.options.layers;
  copy->parameters = replica.parts.model->parameters();
  gpu::Work work;
  work.run = [copy, model = replica.parts.model, shards = options_.shards,
              listener = options_.shard_listener](gpu::Ops&) -> absl::Status {
    absl::Status status = snapshot(*model, *copy);
    if (status.ok()) caf::anon_send(shards, std::move(*copy), listener);
    return status;
  };
  return work;
}

gpu::Work StateCopies::keep(const StageReplica& replica, uint64_t steps_done) {
  const auto address = options_.snapshot_addresses.find(replica.stage);
  const bool is_kept = address != options_.snapshot_addresses.end();
  if (!is_kept || !under_way_[replica.stage].expired()) return {};
  auto request = std::make_shared<SnapshotRequest>();
  request->generation = options_.generation;
  request->stage = replica.stage;
  request->peer_address = address->second;
  request->state.step = steps_done;
  request->under_way = std::make_shared<const int>(0);
  under_way_[replica.stage] = request->under_way;
  const plans::LayerRange& layers = replica.parts.options.layers;
  request->state.layers = layers;
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    request->state.copies[layer] = memory_.at(layer)->take();
  }
  gpu::Work work;
  work.run = [request, model = replica.parts.model, spec = options_.model, shards = options_.shards,
              listener = options_.snapshot_listener](gpu::Ops&) -> absl::Status {
    for (const auto& [layer, copy] : request->state.copies) {
      SKEIN_RETURN_IF_ERROR(copy_layer_state(spec, layer, *model, *copy));
    }
    caf::anon_send(shards, std::move(*request), listener);
    return absl::OkStatus();
  };
  return work;
}

absl::Status snapshot(const gpu::StageModel& model, ShardRequest& copy) {
  const size_t count = copy.parameters.size();
  auto read_all = [&](gpu::StateKind kind, std::vector<std::vector<float>>& to) -> absl::Status {
    to.resize(count);
    for (size_t i = 0; i < count; ++i) {
      to[i].resize(static_cast<size_t>(plans::element_count(copy.parameters[i])));
      SKEIN_RETURN_IF_ERROR(model.read_state(i, kind, to[i]));
    }
    return absl::OkStatus();
  };
  SKEIN_RETURN_IF_ERROR(read_all(gpu::StateKind::kWeight, copy.weights));
  SKEIN_RETURN_IF_ERROR(read_all(gpu::StateKind::kMomentFirst, copy.moments_first));
  return read_all(gpu::StateKind::kMomentSecond, copy.moments_second);
}

}  // namespace skein::actors
