#include "actors/coordinator/layer_source_io.hpp"

#include <utility>

#include "actors/end_process.hpp"
#include "actors/tell_when_gone.hpp"
#include "actors/worker/layer_state.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::actors {
LayerSourceIoItself::behavior_type layer_source_io(
    LayerSourceIoItself::stateful_pointer<LayerSourceIoState> self, LayerSourceIoConfig config) {
  end_process_on_failure(*self);
  self->state.self = self;
  self->state.config = std::move(config);
  return {
      [self](const LayersRequest& request, const LayersListener& listener) {
        self->state.serve(request, listener);
      },
      [self](const LayerLeft& left) { self->state.send_next(left.worker, left.generation); },
      [self](const plans::EndTransfers& order) {
        self->state.servings.clear();
        self->state.config.plane->close_before(order.generation);
      },
  };
}

void LayerSourceIoState::serve(const LayersRequest& request, const LayersListener& listener) {
  const plans::SendLayers& order = request.order;
  Serving& serving = servings[order.worker];
  serving = {request, listener, nullptr, {order.layers.begin(), order.layers.end()}};
  auto reader = gpu::CheckpointReader::open(request.load_path);
  if (!reader.ok()) return give_up(order.worker, reader.status());
  serving.reader = *std::move(reader);
  send_next(order.worker, order.generation);
}

void LayerSourceIoState::send_next(plans::WorkerId worker, uint64_t generation) {
  const auto found = servings.find(worker);
  if (found == servings.end() || found->second.request.order.generation != generation) return;
  Serving& serving = found->second;
  if (serving.layers.empty()) {
    servings.erase(found);
    return;
  }
  const int64_t layer = serving.layers.front();
  serving.layers.pop_front();
  if (const absl::Status sent = send_layer(serving, layer); !sent.ok()) give_up(worker, sent);
}

absl::Status LayerSourceIoState::send_layer(const Serving& serving, int64_t layer) {
  const plans::SendLayers& order = serving.request.order;
  const plans::ModelSpec& model = config.job.model;
  const net::TensorHandle state = make_layer_memory(layer_state_floats(model, layer));
  SKEIN_RETURN_IF_ERROR(
      read_layer_state(model, layer, *serving.reader, config.job.optimizer.name, *state));
  net::DataPlane::Rows rows;
  rows.key = {order.generation, static_cast<uint32_t>(layer), net::schema::TensorKind::STATE,
              order.steps_done, 0};
  rows.row_count = 1;
  rows.payload = *state;
  rows.owner = std::make_shared<CopyUnderWay>(CopyUnderWay{
      state, tell_when_gone(LayerSourceIoItself(self), LayerLeft{order.generation, order.worker})});
  config.plane->send(serving.request.address, std::move(rows));
  return absl::OkStatus();
}

void LayerSourceIoState::give_up(plans::WorkerId worker, const absl::Status& why) {
  const auto serving = servings.find(worker);
  self->send(serving->second.listener,
             LayersUnreadable{serving->second.request.order.generation, worker, why});
  servings.erase(serving);
}

}  // namespace skein::actors
