#include "actors/replica/shard_io.hpp"

#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/end_process.hpp"
#include "actors/run_id.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::actors {
namespace {

/// As many shards of a stage as the coordinator has checkpoints under way: who does not read, or a
/// slow link, fills no memory with more.
constexpr size_t kShardsUnderWayMax = 2;

/// What the data plane holds until it is sent.
struct CopyUnderWay {
  net::TensorHandle copy;
  std::shared_ptr<const void> under_way;
};

}  // namespace

ShardWritten ShardIoState::save(const ShardRequest& request) {
  std::vector<gpu::SavedParameter> parameters;
  for (size_t i = 0; i < request.parameters.size(); ++i) {
    parameters.push_back({request.parameters[i], request.weights[i], request.moments_first[i],
                          request.moments_second[i]});
  }
  ShardWritten written{request.steps_done, request.stage, std::vector<gpu::SavedFile>()};
  const absl::Status seen = check_run_folder(config.run_folder, config.run);
  if (seen.ok()) {
    written.files = gpu::write_shard(
        gpu::partial_checkpoint_path(config.run_folder, request.steps_done, config.generation),
        request.stage, config.shard_count, config.optimizer, parameters);
    return written;
  }
  const absl::Status sent =
      config.coordinator_address.empty() ? seen : send_shard(request, parameters);
  written.is_sent = sent.ok();
  if (!sent.ok()) written.files = sent;
  return written;
}

absl::Status ShardIoState::send_shard(const ShardRequest& request,
                                      const std::vector<gpu::SavedParameter>& parameters) {
  auto& others = under_way[request.stage];
  std::erase_if(others, [](const auto& each) { return each.expired(); });
  if (others.size() >= kShardsUnderWayMax) {
    return absl::UnavailableError(absl::StrCat(
        "stage ", request.stage, " is sent to the coordinator, and ", others.size(),
        " shards before this one are still under way; raise checkpoint.interval, or mount the run "
        "folder"));
  }
  const auto token = std::make_shared<const int>(0);
  others.emplace_back(token);
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
    rows.owner = std::make_shared<CopyUnderWay>(CopyUnderWay{state, token});
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
        ShardWritten written = self->state.save(request);
        reach(self->state.config.fail_point, FailPlace::kDuringCheckpoint);
        self->send(listener, std::move(written));
      },
      [self](const SnapshotRequest& request, const SnapshotListener& listener) {
        self->send(listener, self->state.send(request));
      },
  };
}

}  // namespace skein::actors
