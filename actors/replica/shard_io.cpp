#include "actors/replica/shard_io.hpp"

#include <utility>
#include "actors/end_process.hpp"

namespace skein::actors {
namespace {

/// What the data plane holds until it is sent.
struct CopyUnderWay {
  net::TensorHandle copy;
  std::shared_ptr<const void> under_way;
};

}  // namespace

absl::StatusOr<std::vector<gpu::SavedFile>> ShardIoState::write(const ShardRequest& request) const {
  std::vector<gpu::SavedParameter> parameters;
  for (size_t i = 0; i < request.parameters.size(); ++i) {
    parameters.push_back({request.parameters[i], request.weights[i], request.moments_first[i],
                          request.moments_second[i]});
  }
  return gpu::write_shard(
      gpu::partial_checkpoint_path(config.run_folder, request.steps_done, config.generation),
      request.stage, config.shard_count, config.optimizer, parameters);
}

SnapshotTaken ShardIoState::send(const SnapshotRequest& request) const {
  SnapshotTaken taken;
  taken.stage = request.stage;
  taken.state = request.state;
  for (const auto& [layer, copy] : request.state.copies) {
    seal_layer_state(layer, *copy);
    net::DataPlane::Rows rows;
    rows.key = {request.generation, static_cast<uint32_t>(layer), net::schema::TensorKind::SNAPSHOT,
                request.state.step, 0};
    rows.sender = static_cast<uint32_t>(request.stage);
    rows.row_count = 1;
    rows.payload = *copy;
    rows.owner = std::make_shared<CopyUnderWay>(CopyUnderWay{copy, request.under_way});
    config.plane->send(request.address, std::move(rows));
    reach(config.fail_point, FailPlace::kDuringSnapshot);
  }
  return taken;
}

ShardIo::behavior_type shard_io(ShardIo::stateful_pointer<ShardIoState> self,
                                ShardIoConfig config) {
  end_process_on_failure(*self);
  self->state.config = std::move(config);
  return {
      [self](const ShardRequest& request, const ShardListener& listener) {
        ShardWritten written{request.steps_done, request.stage, self->state.write(request)};
        reach(self->state.config.fail_point, FailPlace::kDuringCheckpoint);
        self->send(listener, std::move(written));
      },
      [self](const SnapshotRequest& request, const SnapshotListener& listener) {
        self->send(listener, self->state.send(request));
      },
  };
}

}  // namespace skein::actors
