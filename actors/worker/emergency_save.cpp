#include "actors/worker/emergency_save.hpp"

#include <filesystem>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/run_id.hpp"
#include "gpu/checkpoint/emergency_shards.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::actors {
namespace {

/// Generation and steps: newest first.
using HeldByState = std::map<std::pair<uint64_t, uint64_t>, std::vector<HeldState>, std::greater<>>;

/// The layer out of one of `held` in which it is whole; null: out of none.
net::TensorHandle find_whole(const plans::ModelSpec& model, int64_t layer, uint64_t steps_done,
                             const std::vector<HeldState>& held) {
  for (const HeldState& each : held) {
    const auto state = find_layer_state(model, layer, steps_done, {each});
    if (state.ok() && check_layer_state(model, layer, **state).ok()) return *state;
  }
  return nullptr;
}

/// The layers of one state that are held. False: none of them.
absl::StatusOr<bool> save_state(const EmergencyRequest& request, const std::string& folder,
                                uint64_t steps_done, const std::vector<HeldState>& held) {
  const plans::ModelSpec& model = request.job.model;
  const int64_t layers = plans::layer_count(model);
  std::vector<gpu::SavedFile> files;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const net::TensorHandle state = find_whole(model, layer, steps_done, held);
    if (!state) continue;
    SKEIN_ASSIGN_OR_RETURN(
        const std::vector<gpu::SavedFile> written,
        gpu::write_shard(folder, static_cast<int>(layer), static_cast<int>(layers),
                         request.job.optimizer.name, saved_parameters(model, layer, *state)));
    files.insert(files.end(), written.begin(), written.end());
  }
  if (files.empty()) return false;
  gpu::TrainerState trainer = gpu::trainer_state_after(request.job, steps_done);
  trainer.run = request.run;
  trainer.data_bytes = request.data_bytes;
  trainer.data_digest = request.data_digest;
  SKEIN_RETURN_IF_ERROR(gpu::finish_emergency_shards(folder, trainer, files));
  return true;
}

}  // namespace

EmergencySaved save_in_emergency(const EmergencyRequest& request) {
  EmergencySaved saved;
  saved.status = check_run_folder(request.run_folder, request.run);
  if (!saved.status.ok()) return saved;
  const uint64_t durable = gpu::durable_steps(request.run_folder, request.run);
  HeldByState states;
  for (const HeldState& each : request.held) {
    if (each.step > durable) states[{each.generation, each.step}].push_back(each);
  }
  for (const auto& [name, held] : states) {
    const auto [generation, steps_done] = name;
    const std::string folder =
        gpu::emergency_path(request.run_folder, steps_done, generation, request.worker.value);
    // By an earlier request: of fewer layers of the same state, perhaps. Files are replaced whole.
    const bool was_there = gpu::has_emergency_shards(folder);
    const absl::StatusOr<bool> is_there = save_state(request, folder, steps_done, held);
    if (is_there.ok() && *is_there) saved.folders.push_back(folder);
    if (is_there.ok()) continue;
    saved.status = is_there.status();
    saved.may_go_later = saved.folders.empty();
    std::error_code error;
    if (was_there) {
      gpu::give_up_emergency_shards(folder);
    } else {
      // Half of it is of no use, and takes space.
      std::filesystem::remove_all(folder, error);
    }
    break;
  }
  return saved;
}

void announce_in_emergency(const EmergencyComing& coming) {
  if (!check_run_folder(coming.run_folder, coming.run).ok()) return;
  // Who cannot write there says so when the state has come.
  (void)gpu::announce_emergency_shards(gpu::emergency_path(coming.run_folder, coming.steps_done,
                                                           coming.generation, coming.worker.value));
}

}  // namespace skein::actors
