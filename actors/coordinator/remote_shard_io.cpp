#include "actors/coordinator/remote_shard_io.hpp"

#include <utility>

#include <caf/send.hpp>

#include "absl/strings/str_cat.h"
#include "actors/end_process.hpp"
#include "actors/worker/layer_state.hpp"

namespace skein::actors {

using net::schema::TensorKind;

RemoteShardIo::behavior_type remote_shard_io(
    RemoteShardIo::stateful_pointer<RemoteShardIoState> self, RemoteShardIoConfig config) {
  end_process_on_failure(*self);
  self->state.self = self;
  self->state.config = std::move(config);
  return {
      [self](const plans::ReceiveShard& shard, const RemoteShardListener& listener) {
        self->state.receive(shard, listener);
      },
      [self](const StateArrived& arrived) { self->state.on_layer(arrived); },
      [self](const plans::AbandonShard& order) { self->state.abandon(order); },
      [self](const plans::EndTransfers& order) {
        self->state.drop();
        self->state.config.plane->close_before(order.generation);
      },
  };
}

void RemoteShardIoState::receive(const plans::ReceiveShard& next, const RemoteShardListener& to) {
  drop();
  shard = next;
  listener = to;
  for (int64_t layer = next.layers.begin; layer < next.layers.end; ++layer) {
    net::TensorInbox::StreamSpec stream;
    stream.generation = next.generation;
    stream.receiver = static_cast<uint32_t>(layer);
    stream.kind = TensorKind::SHARD;
    stream.row_count = 1;
    stream.row_floats = static_cast<uint64_t>(layer_state_floats(config.job.model, layer));
    stream.sender = next.sender;
    stream.tensors_max = 1;
    stream.on_tensor = [to = RemoteShardIo(self)](const net::TensorKey& key,
                                                  net::TensorHandle tensor) {
      caf::anon_send(to, StateArrived{key, std::move(tensor)});
    };
    config.plane->inbox().open(std::move(stream));
  }
}

void RemoteShardIoState::on_layer(const StateArrived& arrived) {
  const int64_t layer = arrived.key.receiver;
  // What is left of one that was given up comes first.
  const bool is_of_shard = shard && arrived.key.generation == shard->generation &&
                           arrived.key.step == shard->steps_done && shard->layers.contains(layer);
  if (!is_of_shard || layers.contains(layer)) return;
  absl::StatusOr<std::vector<gpu::SavedFile>> files;
  const absl::Status whole = check_layer_state(config.job.model, layer, *arrived.tensor);
  if (whole.ok()) {
    layers[layer] = arrived.tensor;
    self->send(listener, ShardLayerArrived{shard->generation, shard->stage, shard->steps_done});
    if (static_cast<int64_t>(layers.size()) < shard->layers.size()) return;
    files = shard->is_discarded ? absl::CancelledError("its checkpoint has failed") : write();
  } else {
    files = absl::UnavailableError(
        absl::StrCat("on its way from w", shard->sender.value, " ", std::string(whole.message())));
  }
  self->send(listener, ShardReceived{*shard, std::move(files)});
  drop();
}

/// As its worker would have written it.
absl::StatusOr<std::vector<gpu::SavedFile>> RemoteShardIoState::write() const {
  std::vector<gpu::SavedParameter> parameters;
  for (const auto& [layer, state] : layers) {
    for (gpu::SavedParameter& each : saved_parameters(config.job.model, layer, *state)) {
      parameters.push_back(std::move(each));
    }
  }
  return gpu::write_shard(
      gpu::partial_checkpoint_path(config.run_folder, shard->steps_done, shard->generation),
      shard->stage, shard->stage_count, config.job.optimizer.name, parameters);
}

void RemoteShardIoState::abandon(const plans::AbandonShard& order) {
  if (shard && shard->stage == order.stage && shard->steps_done == order.steps_done) drop();
}

void RemoteShardIoState::drop() {
  if (!shard) return;
  for (int64_t layer = shard->layers.begin; layer < shard->layers.end; ++layer) {
    config.plane->inbox().close(shard->generation, static_cast<uint32_t>(layer), TensorKind::SHARD);
  }
  shard.reset();
  layers.clear();
}

}  // namespace skein::actors
