// State that leaves a rank while it trains: shards of checkpoints, snapshots for keepers.

#include <memory>
#include <utility>

#include <caf/send.hpp>

#include "actors/replica/rank.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::actors {

net::TensorHandle as_tensor(gpu::StagingPool::Handle memory) {
  struct Tensor {
    gpu::StagingPool::Handle memory;
    std::span<float> span;
  };
  auto tensor = std::make_shared<Tensor>(Tensor{memory, *memory});
  return net::TensorHandle(tensor, &tensor->span);
}

void RankState::carry_out(const plans::SaveState& command) {
  // The copy is work of the device: it runs before the next step's first action changes anything.
  auto copy = std::make_shared<ShardRequest>();
  copy->steps_done = command.steps_done;
  copy->stage = command.stage;
  const std::shared_ptr<gpu::StageModel>& model = held.at(command.stage).parts.model;
  copy->parameters = model->parameters();
  gpu::Work work;
  work.run = [copy, model, shards = config.shards,
              listener = ShardListener(self)](gpu::Ops&) -> absl::Status {
    absl::Status status = snapshot(*model, *copy);
    if (status.ok()) caf::anon_send(shards, std::move(*copy), listener);
    return status;
  };
  submit_aside(kSaveWork, std::move(work));
}

void RankState::carry_out(const plans::KeepSnapshot& command) {
  HeldReplica& replica = held.at(command.stage);
  const plans::WorkerId keeper = config.keepers.at(static_cast<size_t>(command.stage));
  if (keeper.value == 0) return;
  auto request = std::make_shared<SnapshotRequest>();
  request->generation = config.plan.generation;
  request->stage = command.stage;
  request->address = config.addresses.at(keeper);
  request->state.step = command.steps_done;
  request->state.layers = replica.parts.options.layers;
  for (auto& [layer, pool] : replica.snapshots) {
    request->state.copies[layer] = as_tensor(pool->take());
  }
  gpu::Work work;
  work.run = [request, model = replica.parts.model, spec = config.job.model, shards = config.shards,
              listener = SnapshotListener(config.listener)](gpu::Ops&) -> absl::Status {
    for (const auto& [layer, copy] : request->state.copies) {
      SKEIN_RETURN_IF_ERROR(copy_layer_state(spec, layer, *model, *copy));
    }
    caf::anon_send(shards, std::move(*request), listener);
    return absl::OkStatus();
  };
  submit_aside(kSnapshotWork, std::move(work));
}

}  // namespace skein::actors
