#include "actors/worker/prepare_io.hpp"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/collectives/stage_link.hpp"
#include "actors/end_process.hpp"
#include "actors/run_id.hpp"
#include "gpu/checkpoint/checkpoint_names.hpp"
#include "gpu/checkpoint/checkpoint_reader.hpp"
#include "gpu/host/machine_memory.hpp"
#include "gpu/model/memory_estimate.hpp"
#include "gpu/profile/measure_profile.hpp"
#include "plans/base/status_macros.hpp"
#include "plans/collectives/communication_order.hpp"
#include "plans/schedule/continuous_1f1b.hpp"

namespace skein::actors {
namespace {

/// Each layer is measured so often, and the fastest time counts.
constexpr int kProfileRepeats = 3;
/// A peer that has not answered a probe of the link to it for a lease, or for so long, does not.
constexpr double kProbeSecondsMax = 10;

/// DataLoss if the data is not what the coordinator trains on.
absl::Status check_data(const gpu::TokenData& data, const PrepareRequest& request) {
  if (data.bytes() == request.data_bytes && data.digest() == request.data_digest) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      "the training data here (", data.bytes(), " bytes, digest ", data.digest(),
      ") is not that of the coordinator (", request.data_bytes, " bytes, digest ",
      request.data_digest, "); give every machine the same file, and the run the same all along"));
}

absl::StatusOr<std::shared_ptr<const gpu::TokenData>> open_data(const PrepareRequest& request) {
  const plans::JobSpec& job = request.job;
  return gpu::TokenData::open(
      {job.data, job.training.seq_len, job.model.vocab_size, job.debug.seed});
}

/// NotFound if the checkpoint is not seen from here: another run's may lie under the same path.
absl::StatusOr<std::unique_ptr<gpu::CheckpointReader>> open_checkpoint(
    const PrepareRequest& request) {
  const bool is_of_run =
      !request.run_folder.empty() && request.load_path.starts_with(request.run_folder + "/");
  const absl::Status seen =
      is_of_run ? check_run_folder(request.run_folder, request.run) : absl::OkStatus();
  if (!seen.ok()) return absl::NotFoundError(seen.message());
  return gpu::CheckpointReader::open(request.load_path);
}

/// Copies the model's state out of the checkpoint. `unreadable` is set if it is that which failed.
absl::Status load_state(const gpu::CheckpointReader& reader, const std::string& optimizer,
                        gpu::StageModel& model, bool& unreadable) {
  const auto& parameters = model.parameters();
  constexpr std::span kMoments = std::span(gpu::kStateKinds).subspan(1);
  const std::span<const char* const> suffixes = gpu::moment_suffixes(optimizer);
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::vector<float> values(static_cast<size_t>(plans::element_count(parameters[i])));
    auto load = [&](const std::string& name, gpu::StateKind kind) -> absl::Status {
      const absl::Status read = reader.read(name, values);
      unreadable = !read.ok();
      SKEIN_RETURN_IF_ERROR(read);
      return model.write_state(i, kind, values);
    };
    const std::string& name = parameters[i].name;
    SKEIN_RETURN_IF_ERROR(load(name, gpu::StateKind::kWeight));
    for (size_t j = 0; j < suffixes.size(); ++j) {
      SKEIN_RETURN_IF_ERROR(load(absl::StrCat(name, suffixes[j]), kMoments[j]));
    }
  }
  return absl::OkStatus();
}

gpu::StageModelOptions model_options(const PrepareRequest& request, plans::ReplicaId id) {
  const plans::JobSpec& job = request.job;
  const plans::PlanPart& plan = request.plan;
  const int32_t stage = plans::stage_of(plan, id);
  gpu::StageModelOptions options;
  options.model = job.model;
  options.layers = plans::stage_at(plan, stage).layers;
  options.optimizer = job.optimizer;
  options.rows = plans::replica_of(plan, id).rows.count;
  options.seq_len = job.training.seq_len;
  options.stash_count = plans::stash_peak(plan.actions, stage);
  if (request.passes_in_flight > 1) {
    const plans::Continuous1F1B order{plan.stage_count, static_cast<int32_t>(plan.microbatch_count),
                                      request.passes_in_flight};
    options.stash_count = order.stash_peak(stage);
    options.old_versions = order.old_versions(stage);
  }
  options.recompute = plan.recompute;
  if (job.tokens.reproducible) {
    options.exact_summands = job.training.global_batch_size / options.rows;  // Tokens of a step.
  }
  options.seed = job.debug.seed;
  return options;
}

/// A model of these options that is held already, with the state to go on from.
std::shared_ptr<gpu::StageModel> find_model(const PrepareRequest& request,
                                            const gpu::StageModelOptions& options) {
  for (const HeldState& held : request.held) {
    const gpu::StageModelOptions& other = held.options;
    if (held.model && held.step == request.first_step && other.layers == options.layers &&
        other.rows == options.rows && other.stash_count == options.stash_count &&
        other.old_versions == options.old_versions && other.recompute == options.recompute &&
        other.exact_summands == options.exact_summands && other.optimizer == options.optimizer) {
      return held.model;
    }
  }
  return nullptr;
}

/// Copies what is held of the model's layers into it.
absl::Status take_state(const PrepareRequest& request, const plans::LayerRange& layers,
                        gpu::StageModel& model) {
  const plans::ModelSpec& spec = request.job.model;
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    SKEIN_ASSIGN_OR_RETURN(const net::TensorHandle state,
                           find_layer_state(spec, layer, request.first_step, request.held));
    SKEIN_RETURN_IF_ERROR(write_layer_state(spec, layer, *state, model));
  }
  return absl::OkStatus();
}

/// Damaged or missing state of other workers is no bad input: there are other sources. A device
/// that cannot give or take state is our own, and does not mend itself.
absl::Status as_unavailable(const absl::Status& status) {
  const bool is_own = status.ok() || absl::IsInternal(status);
  return is_own ? status : absl::UnavailableError(status.message());
}

std::vector<plans::GroupId> groups_of(const plans::PlanPart& plan, plans::ReplicaId id) {
  std::vector<plans::GroupId> groups;
  for (const plans::GroupPart& group : plan.groups) {
    if (group.member == id) groups.push_back(group.id);
  }
  return groups;
}

/// Empty where no link can lead from device to device.
std::map<int32_t, LinkTensors> tensors_of_links(const PrepareRequest& request) {
  std::map<int32_t, LinkTensors> links;
  if (request.linked.empty() || !request.device->groups().ok()) return links;
  const plans::CommunicationPlaces places =
      plans::communication_places(request.plan, request.worker);
  const int64_t row_numbers = request.job.training.seq_len * request.job.model.channels;
  for (int32_t front : request.linked) {
    links[front] = tensors_of_link(request.plan, places, request.worker, front, row_numbers);
  }
  return links;
}

/// Before anything is allocated: a job that does not fit beside others leaves them alone.
absl::Status reserve_memory(const PrepareRequest& request,
                            const std::map<int32_t, LinkTensors>& links) {
  int64_t bytes = 0;
  const bool is_split = std::any_of(
      request.plan.actions.begin(), request.plan.actions.end(),
      [](const auto& action) { return action.type == plans::ActionType::kBackwardInput; });
  for (const plans::StagePart& stage : request.plan.stages) {
    for (const plans::ReplicaPlan& replica : stage.replicas) {
      if (replica.worker != request.worker) continue;
      const gpu::StageModelOptions options = model_options(request, replica.id);
      const gpu::MemoryEstimate estimate = gpu::estimate_memory(options, request.device->info());
      bytes += estimate.total_bytes() + (is_split ? estimate.split_bytes : 0);
    }
  }
  for (const auto& [front, tensors] : links) bytes += tensors.bytes();
  return request.device->reserve(bytes);
}

/// On the device there is a model that the plan does not go on with.
bool holds_other_models(const PrepareRequest& request, const PreparedReplicas& result) {
  return std::any_of(request.on_device.begin(), request.on_device.end(), [&](const auto& held) {
    return std::none_of(result.replicas.begin(), result.replicas.end(),
                        [&](const auto& each) { return each.model == held.model; });
  });
}

/// Behind the models. ResourceExhausted only if models can be let go for it.
absl::Status take_link_memory(const PrepareRequest& request, PreparedReplicas& result) {
  for (const auto& [front, tensors] : result.links) {
    auto memory = gpu::DevicePool::create(
        request.device, {tensors.numbers, request.device->info().activations, tensors.count});
    if (memory.ok()) {
      result.link_memory[front] = *std::move(memory);
    } else if (!absl::IsResourceExhausted(memory.status()) || holds_other_models(request, result)) {
      return memory.status();
    }
  }
  return absl::OkStatus();
}

absl::Status prepare(const PrepareRequest& request, PreparedReplicas& result) {
  result.links = tensors_of_links(request);
  SKEIN_RETURN_IF_ERROR(reserve_memory(request, result.links));
  result.data = request.data;
  if (request.device->info().computes) {
    if (!result.data || !result.data->is_unchanged()) {
      SKEIN_ASSIGN_OR_RETURN(result.data, open_data(request));
    }
    // Also if it was open: the coordinator may be a new one, with other data.
    SKEIN_RETURN_IF_ERROR(check_data(*result.data, request));
  }
  std::unique_ptr<gpu::CheckpointReader> reader;
  if (request.from_checkpoint && !request.load_path.empty()) {
    auto opened = open_checkpoint(request);
    result.is_checkpoint_unseen =
        absl::IsNotFound(opened.status()) || absl::IsPermissionDenied(opened.status());
    result.is_checkpoint_unreadable = !opened.ok() && !result.is_checkpoint_unseen;
    SKEIN_RETURN_IF_ERROR(opened.status());
    reader = *std::move(opened);
    SKEIN_RETURN_IF_ERROR(reader->check_model(request.job.model));
    if (const uint64_t step = reader->trainer_state().steps_done; step != request.first_step) {
      result.is_checkpoint_unreadable = true;
      return absl::DataLossError(absl::StrCat(request.load_path, " is of step ", step,
                                              ", and the plan goes on from step ",
                                              request.first_step));
    }
  }
  for (const plans::StagePart& stage : request.plan.stages) {
    for (const plans::ReplicaPlan& replica : stage.replicas) {
      if (replica.worker != request.worker) continue;
      PreparedReplica prepared;
      prepared.id = replica.id;
      prepared.options = model_options(request, replica.id);
      if (request.reduces_gradients) prepared.groups = groups_of(request.plan, replica.id);
      if (!request.from_checkpoint) prepared.model = find_model(request, prepared.options);
      if (!prepared.model) {
        SKEIN_ASSIGN_OR_RETURN(prepared.model,
                               gpu::StageModel::create(prepared.options, *request.device));
        if (reader) {
          SKEIN_RETURN_IF_ERROR(load_state(*reader, request.job.optimizer.name, *prepared.model,
                                           result.is_checkpoint_unreadable));
        } else if (!request.from_checkpoint) {
          SKEIN_RETURN_IF_ERROR(as_unavailable(take_state(request, stage.layers, *prepared.model)));
        }
      }
      result.replicas.push_back(std::move(prepared));
    }
  }
  return take_link_memory(request, result);
}

/// Copies on the host of what models on the device hold; nothing if one cannot be read.
std::vector<HeldState> move_to_host(const PrepareRequest& request) {
  std::vector<HeldState> moved;
  if (request.device->info().is_host_memory) return moved;
  for (const HeldState& held : request.on_device) {
    HeldState& copy = moved.emplace_back();
    copy.step = held.step;
    copy.generation = held.generation;
    copy.layers = held.layers;
    for (int64_t layer = held.layers.begin; layer < held.layers.end; ++layer) {
      auto state = find_layer_state(request.job.model, layer, held.step, {held});
      if (!state.ok()) return {};
      copy.copies[layer] = *std::move(state);
    }
  }
  return moved;
}

absl::Status send_state(const SendStateRequest& request) {
  for (const auto& [layer, address] : request.layers) {
    SKEIN_ASSIGN_OR_RETURN(const net::TensorHandle state,
                           find_layer_state(request.model, layer, request.step, request.held));
    SKEIN_RETURN_IF_ERROR(check_layer_state(request.model, layer, *state));
    net::DataPlane::Rows rows;
    rows.key = {request.generation, static_cast<uint32_t>(layer), net::schema::TensorKind::STATE,
                request.step, 0};
    rows.row_count = 1;
    rows.payload = *state;
    rows.owner = state;
    request.plane->send(address, std::move(rows));
    reach(request.fail_point, FailPlace::kDuringStateSend);
  }
  return absl::OkStatus();
}

/// Before anything is allocated, as for a plan.
absl::StatusOr<plans::Profile> measure_device(const ProfileWork& work) {
  gpu::Device& device = *work.device;
  SKEIN_RETURN_IF_ERROR(device.reserve_briefly(gpu::profile_bytes(work.job, device, work.rows)));
  absl::StatusOr<plans::Profile> profile =
      gpu::measure_profile(work.job, device, work.rows, kProfileRepeats);
  if (const absl::Status freed = device.reserve(0); !freed.ok()) return freed;
  return profile;
}

/// What plans may count on. On a host that jobs share that is what the others leave, less what a
/// stage takes besides.
int64_t memory_left(const ProfileWork& work, bool is_device_memory) {
  const int64_t left = work.device->memory().limit;
  if (is_device_memory) return left;
  if (left == 0) return work.job.device.memory_limit_mb << 20;
  const int64_t working = gpu::working_bytes(work.job, *work.device, work.rows.back());
  return std::max<int64_t>(1, left - working);
}

absl::Status measure(const ProfileWork& work, plans::MeasuredWorker& measured) {
  SKEIN_ASSIGN_OR_RETURN(measured.profile, measure_device(work));
  measured.is_device_memory = work.device->info().memory_bytes > 0;
  measured.memory_bytes =
      measured.is_device_memory ? work.device->info().memory_bytes : gpu::machine_memory_bytes();
  measured.memory_bytes_max = memory_left(work, measured.is_device_memory);
  measured.rounding_bytes = gpu::rounding_bytes(work.job, *work.device, work.rows.back());
  const double patience_s = std::min(work.job.elastic.heartbeat_timeout_seconds, kProbeSecondsMax);
  const std::chrono::milliseconds patience(static_cast<int64_t>(patience_s * 1e3));
  for (plans::WorkerId peer : work.peers) {
    // Whoever does not answer is lost or cut off, which is for others to find: the link to it stays
    // unknown.
    const absl::StatusOr<plans::LinkSpeed> speed = work.links->measure(peer, patience);
    if (speed.ok()) measured.links[peer] = *speed;
  }
  return absl::OkStatus();
}

}  // namespace

PrepareIo::behavior_type prepare_io(PrepareIo::stateful_pointer<PrepareIoState> self) {
  end_process_on_failure(*self);
  return {
      [self](const PrepareRequest& request, const PrepareListener& listener) {
        PreparedReplicas result;
        result.generation = request.plan.generation;
        result.status = prepare(request, result);
        if (absl::IsResourceExhausted(result.status)) {
          result.replicas.clear();
          result.link_memory.clear();
          result.moved = move_to_host(request);
        }
        self->send(listener, std::move(result));
        // What earlier plans have freed lies scattered in the heaps of many threads, and would add
        // up from plan to plan.
        malloc_trim(0);
      },
      [self](const SendStateRequest& request, const PrepareListener& listener) {
        self->send(listener, StateSent{request.generation, as_unavailable(send_state(request))});
      },
      [self](const ProfileWork& work, const PrepareListener& listener) {
        ProfileMeasured result;
        result.status = measure(work, result.measured);
        self->send(listener, std::move(result));
      },
      [self](const EmergencyRequest& request, const PrepareListener& listener) {
        self->send(listener, save_in_emergency(request));
      },
      [](const EmergencyComing& coming) { announce_in_emergency(coming); },
  };
}

}  // namespace skein::actors
