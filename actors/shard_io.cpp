#include "actors/shard_io.hpp"

#include <utility>

namespace skein::actors {

absl::StatusOr<std::vector<gpu::SavedFile>> ShardIoState::write(const ShardRequest& request) const {
  std::vector<gpu::SavedParameter> parameters;
  for (size_t i = 0; i < request.parameters.size(); ++i) {
    parameters.push_back({request.parameters[i], request.weights[i], request.moments_first[i],
                          request.moments_second[i]});
  }
  return gpu::write_shard(gpu::partial_checkpoint_path(config.run_folder, request.steps_done),
                          request.stage, config.shard_count, config.optimizer, parameters);
}

ShardIo::behavior_type shard_io(ShardIo::stateful_pointer<ShardIoState> self,
                                ShardIoConfig config) {
  self->state.config = std::move(config);
  return {
      [self](const ShardRequest& request, const ShardListener& listener) {
        self->send(listener,
                   ShardWritten{request.steps_done, request.stage, self->state.write(request)});
      },
  };
}

}  // namespace skein::actors
