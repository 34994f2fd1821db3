#include "actors/replica/shard_io.hpp"

#include <utility>
#include <vector>

#include "actors/end_process.hpp"
#include "actors/run_id.hpp"
#include "actors/tell_when_gone.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::actors {
namespace {

/// Who does not read, or a slow link, has the data plane hold no more of a stage. The others wait;
/// the coordinator orders no checkpoint but the last while it has two under way.
constexpr int kShardsUnderWayMax = 2;
/// Checkpoints that the coordinator has under way at most: two, and the last one.
constexpr size_t kShardsAwaitedMax = 3;

std::vector<gpu::SavedParameter> saved_parameters(const ShardRequest& request) {
  std::vector<gpu::SavedParameter> parameters;
  for (size_t i = 0; i < request.parameters.size(); ++i) {
    parameters.push_back({request.parameters[i], request.weights[i], request.moments_first[i],
                          request.moments_second[i]});
  }
  return parameters;
}

}  // namespace

void ShardIoState::save(ShardRequest request, const ShardListener& listener) {
  ShardWritten written{request.steps_done, request.stage, std::vector<gpu::SavedFile>()};
  const absl::Status seen = check_run_folder(config.run_folder, config.run);
  if (seen.ok()) {
    written.files = gpu::write_shard(
        gpu::partial_checkpoint_path(config.run_folder, request.steps_done, config.generation),
        request.stage, config.shard_count, config.optimizer, saved_parameters(request));
  } else {
    written.files = seen;
  }
  // The coordinator sees it, and may have the rights; it says so if it has not.
  const bool is_for_others = !seen.ok() || absl::IsPermissionDenied(written.files.status());
  if (is_for_others && !config.coordinator_address.empty()) {
    return announce(std::move(request), listener);
  }
  reach(config.fail_point, FailPlace::kDuringCheckpoint);
  self->send(listener, std::move(written));
}

void ShardIoState::announce(ShardRequest request, const ShardListener& listener) {
  const int32_t stage = request.stage;
  ShardWritten written{request.steps_done, stage, std::vector<gpu::SavedFile>()};
  written.is_sent = true;
  // Said at once: the coordinator may not read those before it until it hears of another one.
  self->send(listener, std::move(written));
  std::deque<std::pair<ShardRequest, ShardListener>>& waiting = outboxes[stage].waiting;
  waiting.emplace_back(std::move(request), listener);
  // The coordinator awaits no older ones: their checkpoints have failed.
  if (waiting.size() > kShardsAwaitedMax) waiting.pop_front();
  send_waiting(stage);
}

void ShardIoState::send_waiting(int32_t stage) {
  Outbox& outbox = outboxes[stage];
  while (outbox.under_way < kShardsUnderWayMax && !outbox.waiting.empty()) {
    const auto [request, listener] = std::move(outbox.waiting.front());
    outbox.waiting.pop_front();
    const absl::Status sent = send_shard(request);
    if (!sent.ok()) self->send(listener, ShardWritten{request.steps_done, stage, sent});
  }
}

absl::Status ShardIoState::send_shard(const ShardRequest& request) {
  // The last layer that leaves takes it along.
  const auto under_way = tell_when_gone(ShardIoItself(self), ShardGone{request.stage});
  ++outboxes[request.stage].under_way;
  const std::vector<gpu::SavedParameter> parameters = saved_parameters(request);
  for (int64_t layer = request.layers.begin; layer < request.layers.end; ++layer) {
    const net::TensorHandle state = make_layer_memory(layer_state_floats(config.model, layer));
    SKEIN_RETURN_IF_ERROR(copy_layer_state(config.model, layer, parameters, *state));
    seal_layer_state(layer, *state);
    net::DataPlane::Rows rows;
    rows.key = {config.generation, static_cast<uint32_t>(layer), net::schema::TensorKind::SHARD,
                request.steps_done, 0};
    rows.sender = static_cast<uint32_t>(request.stage);
    rows.row_count = 1;
    rows.payload = *state;
    rows.owner = std::make_shared<CopyUnderWay>(CopyUnderWay{state, under_way});
    config.plane->send(config.coordinator_address, std::move(rows));
  }
  return absl::OkStatus();
}

SnapshotTaken ShardIoState::send(const SnapshotRequest& request) const {
  SnapshotTaken taken;
  taken.stage = request.stage;
  taken.state = request.state;
  for (const auto& [layer, copy] : request.state.copies) {
    seal_layer_state(layer, *copy);
    if (!request.peer_address) continue;
    net::DataPlane::Rows rows;
    rows.key = {request.generation, static_cast<uint32_t>(layer), net::schema::TensorKind::SNAPSHOT,
                request.state.step, 0};
    rows.sender = static_cast<uint32_t>(request.stage);
    rows.row_count = 1;
    rows.payload = *copy;
    rows.owner = std::make_shared<CopyUnderWay>(CopyUnderWay{copy, request.under_way});
    config.plane->send(*request.peer_address, std::move(rows));
    reach(config.fail_point, FailPlace::kDuringSnapshot);
  }
  return taken;
}

ShardIoItself::behavior_type shard_io(ShardIoItself::stateful_pointer<ShardIoState> self,
                                      ShardIoConfig config) {
  end_process_on_failure(*self);
  self->state.self = self;
  self->state.config = std::move(config);
  return {
      [self](ShardRequest& request, const ShardListener& listener) {
        self->state.save(std::move(request), listener);
      },
      [self](const SnapshotRequest& request, const SnapshotListener& listener) {
        self->send(listener, self->state.send(request));
      },
      [self](const ShardGone& gone) {
        --self->state.outboxes.at(gone.stage).under_way;
        self->state.send_waiting(gone.stage);
      },
  };
}

}  // namespace skein::actors
