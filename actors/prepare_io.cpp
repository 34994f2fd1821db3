#include "actors/prepare_io.hpp"

#include <sys/sysinfo.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/checkpoint/checkpoint.hpp"
#include "gpu/profile/measure_profile.hpp"
#include "plans/base/status_macros.hpp"

namespace skein::actors {
namespace {

/// Of each layer, of which the fastest counts.
constexpr int kProfileRepeats = 3;

absl::StatusOr<std::shared_ptr<const gpu::TokenData>> open_data(const PrepareRequest& request) {
  const plans::JobSpec& job = request.job;
  SKEIN_ASSIGN_OR_RETURN(
      std::shared_ptr<const gpu::TokenData> data,
      gpu::TokenData::open({job.data, job.training.seq_len, job.model.vocab_size, job.debug.seed}));
  if (data->bytes() != request.data_bytes || data->digest() != request.data_digest) {
    return absl::DataLossError(
        absl::StrCat("the training data here (", data->bytes(), " bytes, digest ", data->digest(),
                     ") is not that of the coordinator (", request.data_bytes, " bytes, digest ",
                     request.data_digest, "); give every machine the same file"));
  }
  return data;
}

absl::Status load_state(const gpu::CheckpointReader& reader, const std::string& optimizer,
                        gpu::StageModel& model) {
  const auto& parameters = model.parameters();
  const bool is_sgd = optimizer == "sgd";
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::vector<float> values(static_cast<size_t>(plans::element_count(parameters[i])));
    auto load = [&](const std::string& name, gpu::StateKind kind) -> absl::Status {
      SKEIN_RETURN_IF_ERROR(reader.read(name, values));
      return model.write_state(i, kind, values);
    };
    const std::string& name = parameters[i].name;
    SKEIN_RETURN_IF_ERROR(load(name, gpu::StateKind::kWeight));
    SKEIN_RETURN_IF_ERROR(
        load(name + (is_sgd ? ".momentum" : ".exp_avg"), gpu::StateKind::kMomentFirst));
    if (!is_sgd) {
      SKEIN_RETURN_IF_ERROR(load(name + ".exp_avg_sq", gpu::StateKind::kMomentSecond));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<gpu::StageModel>> build_model(const PrepareRequest& request,
                                                             plans::ReplicaId id) {
  const plans::JobSpec& job = request.job;
  const plans::Plan& plan = request.plan;
  const int32_t stage = plans::stage_of(plan, id);
  gpu::StageModelOptions options;
  options.model = job.model;
  options.layers = plan.stages[static_cast<size_t>(stage)].layers;
  options.optimizer = job.optimizer;
  options.rows = plans::replica_of(plan, id).rows.count;
  options.seq_len = job.training.seq_len;
  const plans::StagePlan& stage_plan = plan.stages[static_cast<size_t>(stage)];
  options.stash_count =
      plans::stash_peak(plan.actions[static_cast<size_t>(stage_plan.rank)], stage);
  options.recompute = plan.recompute;
  options.seed = job.debug.seed;
  SKEIN_ASSIGN_OR_RETURN(std::shared_ptr<gpu::StageModel> model,
                         gpu::StageModel::create(options, *request.device));
  return model;
}

absl::StatusOr<std::shared_ptr<net::GradientGroup>> form_group(const PrepareRequest& request,
                                                               const plans::ReductionGroup& group,
                                                               plans::ReplicaId id) {
  const auto position = std::find(group.members.begin(), group.members.end(), id);
  net::GradientGroup::Options options;
  options.name = absl::StrCat("generation-", request.plan.generation, "/group-", group.id.value);
  options.rank = static_cast<uint32_t>(position - group.members.begin());
  options.rank_count = static_cast<uint32_t>(group.members.size());
  options.bind_host = request.bind_host;
  options.timeout_seconds = request.job.comm.train_timeout_seconds;
  SKEIN_ASSIGN_OR_RETURN(std::shared_ptr<net::GradientGroup> formed,
                         net::GradientGroup::form(options, request.board));
  return formed;
}

absl::Status prepare(const PrepareRequest& request, PreparedReplicas& result) {
  if (request.device->info().computes) {
    SKEIN_ASSIGN_OR_RETURN(result.data, open_data(request));
  }
  std::unique_ptr<gpu::CheckpointReader> reader;
  if (!request.load_path.empty()) {
    SKEIN_ASSIGN_OR_RETURN(reader, gpu::CheckpointReader::open(request.load_path, false));
  }
  for (const plans::StagePlan& stage : request.plan.stages) {
    for (const plans::ReplicaPlan& replica : stage.replicas) {
      if (replica.worker != request.worker) continue;
      PreparedReplica prepared;
      prepared.id = replica.id;
      SKEIN_ASSIGN_OR_RETURN(prepared.model, build_model(request, replica.id));
      if (reader) {
        SKEIN_RETURN_IF_ERROR(load_state(*reader, request.job.optimizer.name, *prepared.model));
      }
      result.replicas.push_back(std::move(prepared));
    }
  }
  // Groups last and in the order of their numbers on every worker: forming one waits for all of
  // its members.
  for (const plans::ReductionGroup& group : request.plan.groups) {
    if (group.members.size() < 2) continue;
    for (PreparedReplica& prepared : result.replicas) {
      const bool is_member =
          std::find(group.members.begin(), group.members.end(), prepared.id) != group.members.end();
      if (!is_member) continue;
      SKEIN_ASSIGN_OR_RETURN(prepared.groups[group.id], form_group(request, group, prepared.id));
    }
  }
  return absl::OkStatus();
}

/// Of this machine; 0 if the system does not say.
int64_t machine_memory_bytes() {
  struct sysinfo info {};
  if (sysinfo(&info) != 0) return 0;
  return static_cast<int64_t>(info.totalram) * info.mem_unit;
}

absl::Status measure(const ProfileWork& work, plans::MeasuredWorker& measured) {
  SKEIN_ASSIGN_OR_RETURN(measured.profile,
                         gpu::measure_profile(work.job, *work.device, work.rows, kProfileRepeats));
  measured.memory_bytes = machine_memory_bytes();
  for (plans::WorkerId peer : work.peers) {
    SKEIN_ASSIGN_OR_RETURN(measured.links[peer], work.links->measure(peer));
  }
  return absl::OkStatus();
}

}  // namespace

PrepareIo::behavior_type prepare_io(PrepareIo::stateful_pointer<PrepareIoState> self) {
  return {
      [self](const PrepareRequest& request, const PrepareListener& listener) {
        PreparedReplicas result;
        result.status = prepare(request, result);
        self->send(listener, std::move(result));
      },
      [self](const ProfileWork& work, const PrepareListener& listener) {
        ProfileMeasured result;
        result.status = measure(work, result.measured);
        self->send(listener, std::move(result));
      },
  };
}

}  // namespace skein::actors
